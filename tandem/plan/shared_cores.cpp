#include "tandem/plan/shared_cores.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <map>
#include <memory>

#include "tandem/base/error.h"

namespace tandem::plan {
namespace {

// Messages up to the size of a mailbox (comm/window_communicator.h) are gone before the other side comes.
constexpr double kMailboxBytes = 256 << 10;

enum class State : uint8_t {
  Idle,
  Queued,   // waits for items of other streams of its rank
  Meeting,  // waits for other ranks
  Working,
  Ended  // its own part of a meeting's work is done
};

struct Meeting;

// What a stream of a rank is at.
struct Current {
  State state = State::Idle;
  const Item* item = nullptr;
  std::array<int64_t, kNumStreams> needs = {};  // items of each stream that must have ended
  double left = 0;                              // CPU seconds of each thread
  double begin = 0;
  Meeting* meeting = nullptr;
};

struct Member {
  int rank, stream;
};

// Items of several ranks that begin when all are there and end together; or a small message, whose second
// half may begin when the first has ended.
struct Meeting {
  size_t size = 0, ended = 0;
  bool in_turns = false;
  bool sent = false;
  double work = 0;  // of a message's sender
  std::vector<Member> members;
};

struct Rank {
  MeshPosition at;
  const Program* program = nullptr;
  size_t run = 0, next = 0;
  int times = 0;
  std::array<std::deque<Current>, kNumStreams> queued;  // not of the computation
  std::array<Current, kNumStreams> current;
  std::array<int64_t, kNumStreams> issued = {}, ended = {};
  // How many meetings of each kind it came to: which of them is next.
  std::map<std::pair<int, int>, int64_t> met;
  double done_at = 0;
  RankTime time;

  bool is_done() const { return run == program->size(); }
  bool has_ended_all() const { return issued == ended; }
};

class Machine {
 public:
  Machine(std::span<const Program> programs, const MeshShape& mesh, const CoreOptions& options)
      : mesh_(mesh), options_(options), ranks_(static_cast<size_t>(mesh.world())) {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      ranks_[i].at = MeshPosition::of(mesh, static_cast<int>(i));
      ranks_[i].program = &programs[static_cast<size_t>(ranks_[i].at.pipeline)];
    }
  }

  Simulation run() {
    for (;;) {
      bool moved = true;
      while (moved) {
        moved = false;
        for (size_t i = 0; i < ranks_.size(); ++i) moved = advance(static_cast<int>(i)) || moved;
      }
      if (std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.is_done(); })) break;
      work();
    }
    return result();
  }

 private:
  // As far as it gets at this moment; whether it got anywhere.
  bool advance(int index) {
    Rank& rank = ranks_[static_cast<size_t>(index)];
    bool moved = false;
    for (int stream = 0; stream < kNumStreams; ++stream) {
      Current& current = rank.current[static_cast<size_t>(stream)];
      std::deque<Current>& queued = rank.queued[static_cast<size_t>(stream)];
      if (current.state == State::Idle && !queued.empty()) {
        current = queued.front();
        queued.pop_front();
      }
    }
    while (rank.current[kComputeStream].state == State::Idle && issue(rank)) moved = true;
    for (int stream = 0; stream < kNumStreams; ++stream) {
      if (rank.current[static_cast<size_t>(stream)].state == State::Queued && is_ready(rank, stream)) {
        begin(index, stream);
        moved = true;
      }
    }
    return moved;
  }

  // Takes the next item of the program, or the next run; false where it has to wait for one.
  bool issue(Rank& rank) {
    if (rank.is_done()) return false;
    const Run& run = (*rank.program)[rank.run];
    if (rank.next == run.items->size()) {
      if (run.joins && !rank.has_ended_all()) return false;
      rank.next = 0;
      if (++rank.times >= run.times) {
        rank.times = 0;
        ++rank.run;
      }
      if (rank.is_done()) rank.done_at = now_;
      return true;
    }
    const Item& item = (*run.items)[rank.next++];
    Current made;
    made.state = State::Queued;
    made.item = &item;
    for (const Wait& wait : item.waits) {
      const auto stream = static_cast<size_t>(wait.stream);
      made.needs[stream] = std::max(made.needs[stream], rank.issued[stream] - wait.back);
    }
    const auto stream = static_cast<size_t>(item.stream);
    ++rank.issued[stream];
    if (item.stream == kComputeStream || rank.current[stream].state == State::Idle) {
      rank.current[stream] = made;
    } else {
      rank.queued[stream].push_back(made);
    }
    return true;
  }

  static bool is_ready(const Rank& rank, int stream) {
    const Current& current = rank.current[static_cast<size_t>(stream)];
    for (size_t other = 0; other < kNumStreams; ++other) {
      if (rank.ended[other] < current.needs[other]) return false;
    }
    return true;
  }

  void begin(int index, int stream) {
    Rank& rank = ranks_[static_cast<size_t>(index)];
    Current& current = rank.current[static_cast<size_t>(stream)];
    const Item& item = *current.item;
    current.begin = now_;
    current.left = item.seconds + (item.kind == Kind::Kernel ? options_.launch : 0);
    switch (item.kind) {
      case Kind::Collective:
      case Kind::World:
        meet(index, stream, rank.at.group(item.kind == Kind::World ? Axis::World : item.axis));
        return;
      case Kind::Send:
      case Kind::Recv: {
        MeshPosition other = rank.at;
        other.pipeline = item.peer;
        const int peer = other.rank();
        exchange(index, stream, item.kind == Kind::Send ? index : peer,
                 item.kind == Kind::Send ? peer : index);
        return;
      }
      default: current.state = State::Working;
    }
  }

  void meet(int index, int stream, const std::vector<int>& group) {
    Rank& rank = ranks_[static_cast<size_t>(index)];
    const Item& item = *rank.current[static_cast<size_t>(stream)].item;
    const int kind =
        static_cast<int>(item.kind == Kind::World ? Axis::World : item.axis) * kNumStreams + stream;
    const int64_t which = rank.met[{-1, kind}]++;
    Meeting& meeting = at({kind, group.front(), which});
    meeting.size = group.size();
    join(meeting, {index, stream});
  }

  void exchange(int index, int stream, int from, int to) {
    Rank& rank = ranks_[static_cast<size_t>(index)];
    Current& current = rank.current[static_cast<size_t>(stream)];
    const bool sends = index == from;
    const int64_t which = rank.met[{sends ? to : from, sends ? -1 : -2}]++;
    Meeting& meeting = at({-1 - from, to, which});
    meeting.size = 2;
    if (sends) meeting.in_turns = current.item->bytes <= kMailboxBytes;
    if (!sends) current.left = 0;  // known from the sender, who may not be there yet
    join(meeting, {index, stream});
  }

  Meeting& at(const std::array<int64_t, 3>& key) {
    std::unique_ptr<Meeting>& made = meetings_[key];
    if (!made) made = std::make_unique<Meeting>();
    return *made;
  }

  Current& current_of(const Member& member) {
    return ranks_[static_cast<size_t>(member.rank)].current[static_cast<size_t>(member.stream)];
  }

  void join(Meeting& meeting, const Member& member) {
    Current& current = current_of(member);
    current.meeting = &meeting;
    current.state = State::Meeting;
    meeting.members.push_back(member);
    if (meeting.in_turns) return begin_in_turns(meeting);
    if (meeting.members.size() < meeting.size) return;
    double most = 0;  // both sides of a message copy as many bytes
    for (const Member& one : meeting.members) most = std::max(most, current_of(one).left);
    for (const Member& one : meeting.members) {
      Current& each = current_of(one);
      each.left = each.item->kind == Kind::Recv ? most : each.left;
      each.state = State::Working;
    }
  }

  // The sender at once, the receiver when it has ended.
  void begin_in_turns(Meeting& meeting) {
    for (const Member& one : meeting.members) {
      Current& each = current_of(one);
      if (each.state != State::Meeting || each.meeting != &meeting) continue;
      if (each.item->kind == Kind::Send) each.state = State::Working;
      if (each.item->kind == Kind::Recv && meeting.sent) {
        each.left = meeting.work;
        each.state = State::Working;
      }
    }
  }

  // Lets time go by until the next item ends.
  void work() {
    double threads = 0;
    for_each_working(
        [&](Rank&, int stream, Current&) { threads += stream == kComputeStream ? options_.threads : 1; });
    TANDEM_CHECK(threads > 0, "the ranks of this plan wait for each other");
    const double rate = std::min(1.0, options_.cores / threads);
    double least = std::numeric_limits<double>::infinity();
    for_each_working([&](Rank&, int, Current& current) { least = std::min(least, current.left); });
    const double seconds = least / rate;
    for (Rank& rank : ranks_) {
      if (!rank.is_done()) part_of(rank) += seconds;
    }
    now_ += seconds;
    std::vector<Member> ended;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      for (int stream = 0; stream < kNumStreams; ++stream) {
        Current& current = ranks_[i].current[static_cast<size_t>(stream)];
        if (current.state != State::Working) continue;
        current.left -= least;
        constexpr double kNothing = 1e-12;
        if (current.left <= kNothing) ended.push_back({static_cast<int>(i), stream});
      }
    }
    for (const Member& one : ended) end_work(one);
  }

  template <typename Do>
  void for_each_working(const Do& each) {
    for (Rank& rank : ranks_) {
      for (int stream = 0; stream < kNumStreams; ++stream) {
        Current& current = rank.current[static_cast<size_t>(stream)];
        if (current.state == State::Working) each(rank, stream, current);
      }
    }
  }

  void end_work(const Member& one) {
    Current& current = current_of(one);
    Meeting* meeting = current.meeting;
    if (meeting == nullptr) return finish(one);
    if (meeting->in_turns) {
      if (current.item->kind == Kind::Send) {
        meeting->sent = true;
        meeting->work = current.item->seconds;
        finish(one);
        begin_in_turns(*meeting);
      } else {
        finish(one);
      }
      return;
    }
    current.state = State::Ended;
    if (++meeting->ended < meeting->size) return;
    for (const Member& each : meeting->members) finish(each);
  }

  void finish(const Member& one) {
    Rank& rank = ranks_[static_cast<size_t>(one.rank)];
    Current& current = current_of(one);
    const Item& item = *current.item;
    (item.between ? rank.time.sent.between_nodes : rank.time.sent.within_node) += item.bytes;
    if (options_.observe && stands_for_stage(rank))
      options_.observe(rank.at.pipeline, item, current.begin, now_);
    ++rank.ended[static_cast<size_t>(one.stream)];
    current = Current{};
  }

  static bool stands_for_stage(const Rank& rank) { return rank.at.data == 0 && rank.at.tensor == 0; }

  // What a rank's time goes to at this moment.
  double& part_of(Rank& rank) const {
    TimeParts& parts = rank.time.parts;
    const Current& current = rank.current[kComputeStream];
    if (current.state == State::Idle || current.state == State::Queued) {  // for another stream
      for (size_t stream = 1; stream < kNumStreams; ++stream) {
        const int64_t needed = current.state == State::Idle ? rank.issued[stream] : current.needs[stream];
        if (rank.ended[stream] < needed)
          return stream == kSendStream   ? parts.comm_pipeline
                 : stream == kCopyStream ? parts.host
                                         : parts.comm_data;
      }
      return parts.host;
    }
    const Item& item = *current.item;
    switch (item.kind) {
      case Kind::Kernel: return parts.compute;
      case Kind::Host:
      case Kind::Copy: return parts.host;
      case Kind::World:
      case Kind::Recv:
      case Kind::Send: return current.state == State::Meeting ? parts.bubble : parts.comm_pipeline;
      case Kind::Collective: break;
    }
    if (item.axis == Axis::Tensor) return parts.comm_tensor;
    return item.axis == Axis::Pipeline ? parts.comm_pipeline : parts.comm_data;
  }

  Simulation result() {
    Simulation all;
    all.seconds = now_ + options_.step_overhead;
    for (Rank& rank : ranks_) {
      if (!stands_for_stage(rank)) continue;
      rank.time.parts.bubble += now_ - rank.done_at;
      rank.time.parts.host += options_.step_overhead;
      all.ranks.push_back(rank.time);
    }
    return all;
  }

  const MeshShape mesh_;
  const CoreOptions& options_;
  std::vector<Rank> ranks_;
  std::map<std::array<int64_t, 3>, std::unique_ptr<Meeting>> meetings_;
  double now_ = 0;
};

}  // namespace

Simulation simulate_on_cores(std::span<const Program> programs, const MeshShape& mesh,
                             const CoreOptions& options) {
  return Machine(programs, mesh, options).run();
}

}  // namespace tandem::plan
