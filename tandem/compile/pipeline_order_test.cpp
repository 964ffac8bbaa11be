#include "tandem/compile/pipeline_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "tandem/base/error.h"

namespace tandem {
namespace {

struct Setting {
  PipelineSchedule schedule;
  int stages, chunks, micro_batches;
};

std::vector<Setting> grid() {
  std::vector<Setting> settings;
  for (int stages = 2; stages <= 8; ++stages) {
    for (int micro_batches : {1, 2, 3, 4, 7, 8, 16, 17}) {
      for (PipelineSchedule schedule :
           {PipelineSchedule::GPipe, PipelineSchedule::OneFOneB, PipelineSchedule::Interleaved})
        settings.push_back({schedule, stages, 1, micro_batches});
    }
    for (int chunks = 2; chunks <= 4; ++chunks) {
      for (int turns = 1; turns <= 5; ++turns)
        settings.push_back({PipelineSchedule::Interleaved, stages, chunks, turns * stages});
    }
  }
  return settings;
}

std::string name(const Setting& s) {
  return testing::PrintToString(static_cast<int>(s.schedule)) + ": stages " + std::to_string(s.stages) +
         ", chunks " + std::to_string(s.chunks) + ", micro-batches " + std::to_string(s.micro_batches);
}

std::vector<std::vector<PipelineSlot>> orders(const Setting& s) {
  std::vector<std::vector<PipelineSlot>> all;
  for (int stage = 0; stage < s.stages; ++stage)
    all.push_back(pipeline_order(s.schedule, stage, s.stages, s.chunks, s.micro_batches));
  return all;
}

// What one slot hands to another: the activation that enters, or the gradient that leaves, chunk `chunk`.
using Message = std::tuple<bool, int, int>;  // forward, chunk that receives it, micro-batch

// Runs all ranks in time units of one slot of one chunk, sends arriving at once and never waiting, each pair
// of ranks with one ordered channel a direction.
class Simulation {
 public:
  explicit Simulation(const Setting& s)
      : s_(s), orders_(orders(s)), next_(orders_.size()), free_(orders_.size()) {}

  // Returns the time at which the last rank ends, or -1 where ranks wait for each other forever.
  int run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int stage = 0; stage < s_.stages; ++stage) {
        while (step(stage)) moved = true;
      }
    }
    for (int stage = 0; stage < s_.stages; ++stage) {
      if (next_[static_cast<size_t>(stage)] < orders_[static_cast<size_t>(stage)].size()) return -1;
    }
    return *std::max_element(free_.begin(), free_.end());
  }
  bool in_order() const { return in_order_; }
  bool all_received() const {
    return std::all_of(channels_.begin(), channels_.end(), [](const auto& c) { return c.second.empty(); });
  }

 private:
  bool step(int stage) {
    size_t& next = next_[static_cast<size_t>(stage)];
    int& time = free_[static_cast<size_t>(stage)];
    if (next == orders_[static_cast<size_t>(stage)].size()) return false;
    const PipelineSlot slot = orders_[static_cast<size_t>(stage)][next];
    const int chunk = slot.chunk_on_rank * s_.stages + stage, last = s_.stages * s_.chunks - 1;
    const int from = slot.forward ? chunk - 1 : chunk + 1, to = slot.forward ? chunk + 1 : chunk - 1;
    if (from >= 0 && from <= last) {
      auto& channel = channels_[{from % s_.stages, stage}];
      if (channel.empty()) return false;
      const auto [message, arrival] = channel.front();
      channel.pop_front();
      in_order_ = in_order_ && message == Message(slot.forward, chunk, slot.micro_batch);
      time = std::max(time, arrival);
    }
    ++time;
    if (to >= 0 && to <= last)
      channels_[{stage, to % s_.stages}].push_back({Message(slot.forward, to, slot.micro_batch), time});
    ++next;
    return true;
  }

  Setting s_;
  std::vector<std::vector<PipelineSlot>> orders_;
  std::vector<size_t> next_;
  std::vector<int> free_;
  std::map<std::pair<int, int>, std::deque<std::pair<Message, int>>> channels_;
  bool in_order_ = true;
};

// Whether all ranks come to an end where a send waits for its recv, a rank's sends run one after the other
// beside its computation, and it computes on only while no more than `under_way` of them wait.
bool ends_with(const Setting& s, size_t under_way) {
  struct Rank {
    std::vector<std::pair<bool, int>> calls;  // send, peer
    size_t next = 0;
    std::deque<int> sends;  // peers, oldest first
  };
  std::vector<Rank> ranks(static_cast<size_t>(s.stages));
  const int last = s.stages * s.chunks - 1;
  for (int stage = 0; stage < s.stages; ++stage) {
    for (const PipelineSlot& slot : pipeline_order(s.schedule, stage, s.stages, s.chunks, s.micro_batches)) {
      const int chunk = slot.chunk_on_rank * s.stages + stage;
      const int from = slot.forward ? chunk - 1 : chunk + 1, to = slot.forward ? chunk + 1 : chunk - 1;
      auto& calls = ranks[static_cast<size_t>(stage)].calls;
      if (from >= 0 && from <= last) calls.emplace_back(false, from % s.stages);
      if (to >= 0 && to <= last) calls.emplace_back(true, to % s.stages);
    }
  }
  const auto step = [&](int stage) {
    Rank& rank = ranks[static_cast<size_t>(stage)];
    if (rank.next == rank.calls.size() || rank.sends.size() > under_way) return false;
    const auto [send, peer] = rank.calls[rank.next];
    auto& from = ranks[static_cast<size_t>(peer)].sends;
    if (send) {
      rank.sends.push_back(peer);
    } else if (from.empty() || from.front() != stage) {
      return false;
    } else {
      from.pop_front();
    }
    ++rank.next;
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < s.stages; ++stage) {
      while (step(stage)) moved = true;
    }
  }
  return std::all_of(ranks.begin(), ranks.end(), [](const Rank& r) { return r.next == r.calls.size(); });
}

TEST(PipelineOrder, TwoSendsUnderWayAreEnoughWhereSendsWaitForTheirRecv) {
  for (const Setting& s : grid()) EXPECT_TRUE(ends_with(s, kSendsUnderWay)) << name(s);
  EXPECT_FALSE(ends_with({PipelineSchedule::Interleaved, 2, 2, 4}, kSendsUnderWay - 1)) << "and one is not";
}

TEST(PipelineOrder, RunsEachForwardAndBackwardOnceInMicroBatchOrderAndForwardFirst) {
  for (const Setting& s : grid()) {
    for (const std::vector<PipelineSlot>& order : orders(s)) {
      std::map<std::pair<bool, int>, std::vector<int>> seen;  // forward, chunk -> micro-batches
      for (const PipelineSlot& slot : order) {
        if (!slot.forward) {
          const auto& forwards = seen[{true, slot.chunk_on_rank}];
          ASSERT_TRUE(std::count(forwards.begin(), forwards.end(), slot.micro_batch) == 1) << name(s);
        }
        seen[{slot.forward, slot.chunk_on_rank}].push_back(slot.micro_batch);
      }
      ASSERT_EQ(seen.size(), static_cast<size_t>(2 * s.chunks)) << name(s);
      for (const auto& [key, micro_batches] : seen) {
        ASSERT_EQ(micro_batches.size(), static_cast<size_t>(s.micro_batches)) << name(s);
        for (int i = 0; i < s.micro_batches; ++i)
          ASSERT_EQ(micro_batches[static_cast<size_t>(i)], i) << name(s);
      }
    }
  }
}

TEST(PipelineOrder, ReceivesInTheOrderOfSendingOnOneChannelAPairAndNeverWaitsForever) {
  for (const Setting& s : grid()) {
    Simulation simulation(s);
    EXPECT_GE(simulation.run(), 0) << name(s) << ": ranks wait for each other";
    EXPECT_TRUE(simulation.in_order()) << name(s);
    EXPECT_TRUE(simulation.all_received()) << name(s);
  }
}

TEST(PipelineOrder, IdlesForStagesMinusOneSlotsOfEachKind) {
  // Forward and backward one unit each, a chunk 1 / chunks of it: bubble = (p - 1) / (m * chunks).
  for (const Setting& s : grid()) {
    EXPECT_EQ(Simulation(s).run(), 2 * (s.micro_batches * s.chunks + s.stages - 1)) << name(s);
  }
}

TEST(PipelineOrder, HoldsAsManyMicroBatchesAsTheScheduleSays) {
  for (const Setting& s : grid()) {
    for (int stage = 0; stage < s.stages; ++stage) {
      int now = 0, most = 0;
      for (const PipelineSlot& slot :
           pipeline_order(s.schedule, stage, s.stages, s.chunks, s.micro_batches)) {
        now += slot.forward ? 1 : -1;
        most = std::max(most, now);
      }
      EXPECT_EQ(now, 0);
      const int total = s.micro_batches * s.chunks;
      if (s.schedule == PipelineSchedule::GPipe) {
        EXPECT_EQ(most, total) << name(s);
      } else if (s.chunks == 1) {
        EXPECT_EQ(most, std::min(total, s.stages - stage)) << name(s);
      } else {
        EXPECT_EQ(most, std::min(total, 2 * (s.stages - 1 - stage) + (s.chunks - 1) * s.stages + 1))
            << name(s);
      }
    }
  }
}

TEST(PipelineOrder, AlternatesOnceThePipelineIsFull) {
  const std::vector<PipelineSlot> expected = {{true, 0, 0}, {true, 0, 1},  {false, 0, 0},
                                              {true, 0, 2}, {false, 0, 1}, {false, 0, 2}};
  EXPECT_EQ(pipeline_order(PipelineSchedule::OneFOneB, 1, 3, 1, 3), expected);
}

TEST(PipelineOrder, RefusesWhatAScheduleCannotDo) {
  EXPECT_THROW(pipeline_order(PipelineSchedule::GPipe, 0, 2, 2, 4), ConfigError);
  EXPECT_THROW(pipeline_order(PipelineSchedule::OneFOneB, 0, 2, 2, 4), ConfigError);
  EXPECT_THROW(pipeline_order(PipelineSchedule::Interleaved, 0, 2, 2, 3), ConfigError);
}

}  // namespace
}  // namespace tandem
