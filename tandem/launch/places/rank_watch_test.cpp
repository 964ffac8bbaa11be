#include "tandem/launch/places/rank_watch.h"

#include <gtest/gtest.h>

#include <new>

namespace tandem {
namespace {

// Four ranks of a mesh whose pages the test writes.
class RankWatchTest : public testing::Test {
 protected:
  void SetUp() override { make({4, 1, 1}); }

  void make(const MeshShape& shape) {
    std::vector<RankWatch::Rank> ranks;
    regions_.clear();
    for (int rank = 0; rank < shape.world(); ++rank) {
      regions_.push_back(SharedRegion::for_threads(sizeof(PlacePage)));
      ranks.push_back({rank, regions_.back()});
      page(rank).rank = rank;
      page(rank).data = shape.data;
      page(rank).tensor = shape.tensor;
      page(rank).pipeline = shape.pipeline;
      page(rank).magic = PlacePage::kMagic;
      MainRecord main;
      main.state = PlaceState::Running;
      main.step = 12;
      main.pass = 2;
      main.passes = 4;
      main.commands = 709;
      std::strcpy(main.program, "pass");
      page(rank).main.write(main);
    }
    conditions_.assign(regions_.size(), {100, false});
    watch_ = std::make_unique<RankWatch>(
        std::move(ranks), "node-b", RankWatch::Limits{},
        [this](pid_t pid) { return facts_of_.contains(pid) ? facts_of_.at(pid) : facts_; },
        [this] { return load_; });
  }

  PlacePage& page(int rank) {
    return *std::launder(reinterpret_cast<PlacePage*>(regions_[static_cast<size_t>(rank)]->data()));
  }

  void runs(int rank, Doing doing, int index = 180, int block = 5, const char* name = "matmul",
            int stream = 0) {
    LineRecord record;
    record.index = index;
    record.block = block;
    record.doing = doing;
    record.set_name(name);
    page(rank).streams[stream].write(record);
  }

  void calls(int rank, int count, bool inside, Axis axis = Axis::Data) {
    LineRecord record;
    record.index = count;
    record.doing = inside ? Doing::Communicates : Doing::Nothing;
    record.set_name("all_gather");
    page(rank).calls[static_cast<size_t>(axis)][0].write(record);
  }

  // Looks every quarter of a second; the verdicts of all looks.
  std::vector<Verdict> wait(double seconds) {
    std::vector<Verdict> found;
    for (const double end = now_ + seconds; now_ < end; now_ += 0.25) {
      for (Verdict& verdict : watch_->look(now_, conditions_, {})) found.push_back(std::move(verdict));
    }
    return found;
  }

  std::vector<std::shared_ptr<SharedRegion>> regions_;
  std::vector<RankWatch::Condition> conditions_;
  std::unique_ptr<RankWatch> watch_;
  ProcessFacts facts_;
  std::map<pid_t, ProcessFacts> facts_of_;  // of some
  double load_ = 0, now_ = 1000;
};

TEST_F(RankWatchTest, NamesTheRankThatIsStuckAndWhoWaitForIt) {
  for (int rank : {0, 1, 2}) {
    runs(rank, Doing::Communicates, 180, 5, "all_gather");
    calls(rank, 7, true);
  }
  runs(3, Doing::Computes);
  calls(3, 6, false);
  EXPECT_TRUE(wait(4.9).empty());
  const std::vector<Verdict> found = wait(1);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].line,
            "rank 3 on node-b is stuck in matmul of block 5 (pass 2 of 4, command 181 of 709) for 5.0 s; "
            "ranks 0-2 wait for it");
}

TEST_F(RankWatchTest, WhereAllHaveComeAndNothingMovesWhatTheyWaitForIsTold) {
  for (int rank = 0; rank < 4; ++rank) {
    runs(rank, Doing::Communicates, 180, 5, "all_gather");
    calls(rank, 7, true);
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(wait(50).empty()) << "a slow network";
    page(2).moved += 1;
  }
  EXPECT_TRUE(wait(59).empty());
  const std::vector<Verdict> found = wait(2);
  ASSERT_FALSE(found.empty());
  EXPECT_FALSE(found[0].blames());
  EXPECT_EQ(found[0].line,
            "all ranks wait in collectives for 60.0 s, and nothing moves: ranks 0-3 in all_gather of block 5 "
            "(pass 2 of 4, command 181 of 709) to which all have come");
}

TEST_F(RankWatchTest, RanksThatStandInEachOthersWayAreTold) {
  make({2, 2, 1});  // 0 and 2 on the data axis, 0 and 1 on the tensor axis
  for (int rank = 0; rank < 4; ++rank) {
    const bool data = rank == 0 || rank == 3;
    runs(rank, Doing::Communicates, 180, 5, data ? "all_gather" : "all_reduce");
    calls(rank, data ? 7 : 6, data, Axis::Data);
    calls(rank, data ? 2 : 3, !data, Axis::Tensor);
  }
  EXPECT_TRUE(wait(4.9).empty());
  const std::vector<Verdict> found = wait(1);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].kind, "waiting");
  EXPECT_EQ(
      found[0].line,
      "all ranks wait in collectives for 5.0 s, and nothing moves: rank 0 in all_gather of block 5 (pass "
      "2 of 4, command 181 of 709) for rank 2; rank 1 in all_reduce of block 5 (pass 2 of 4, command 181 "
      "of 709) for rank 0; rank 2 in all_reduce of block 5 (pass 2 of 4, command 181 of 709) for rank 3; "
      "rank 3 in all_gather of block 5 (pass 2 of 4, command 181 of 709) for rank 1");
}

TEST_F(RankWatchTest, WhileOneComputesNobodyWaitsInVain) {
  for (int rank = 0; rank < 4; ++rank) {
    runs(rank, Doing::Communicates, 180, 5, "all_gather");
    calls(rank, 7, true);
  }
  for (int i = 0; i < 100; ++i) {
    runs(3, Doing::Computes, i, 5, "copy", 2);
    EXPECT_TRUE(wait(1).empty());
  }
}

TEST_F(RankWatchTest, NamesAStoppedRankWhereverItIs) {
  page(1).magic = 0;  // it has not begun to tell
  conditions_[1].stopped = true;
  const std::vector<Verdict> found = wait(6);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].line, "rank 1 on node-b is stopped while it starts for 5.0 s");
}

TEST_F(RankWatchTest, OneThatGoesOnInTimeIsNotNamed) {
  conditions_[1].stopped = true;
  EXPECT_TRUE(wait(4).empty());
  conditions_[1].stopped = false;
  EXPECT_TRUE(wait(1).empty());
  conditions_[1].stopped = true;
  EXPECT_TRUE(wait(4).empty());
}

TEST_F(RankWatchTest, WaitsGoThroughOtherAxes) {
  make({1, 2, 2});  // rank 2 waits for rank 3 on the tensor axis, rank 0 for a message of rank 2
  runs(2, Doing::Communicates, 10, 1, "all_reduce");
  calls(2, 3, true, Axis::Tensor);
  calls(3, 2, false, Axis::Tensor);
  runs(3, Doing::Computes);
  LineRecord recv;
  recv.index = 1;
  recv.doing = Doing::Communicates;
  recv.peer = 1;
  recv.set_name("recv");
  page(0).calls[static_cast<size_t>(Axis::Pipeline)][static_cast<size_t>(CallKind::Recv)].write(recv);
  const std::vector<Verdict> found = wait(6);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].rank, 3);
  EXPECT_EQ(found[0].waiters, (std::vector<int>{0, 2}));
}

TEST_F(RankWatchTest, ACommandMayTakeWhatItTookBefore) {
  runs(0, Doing::Computes);
  EXPECT_TRUE(wait(4).empty());  // long, but not too long
  runs(0, Doing::Computes, 181);
  wait(0.5);
  runs(0, Doing::Computes);
  EXPECT_TRUE(wait(19).empty());
  EXPECT_FALSE(wait(3).empty());
}

TEST_F(RankWatchTest, ACommandNeverSeenMayTakeAsLongAsItsWorkIs) {
  LineRecord record;
  record.doing = Doing::Computes;
  record.expected_s = 10;
  page(0).streams[0].write(record);
  EXPECT_TRUE(wait(44).empty());
  EXPECT_FALSE(wait(2).empty());
}

TEST_F(RankWatchTest, OneWithoutACoreIsNotNamedUntilItHadTwoSecondsOfOne) {
  runs(0, Doing::Computes);
  wait(0.5);
  for (int i = 0; i < 64; ++i) {  // it gets a tenth of the time
    facts_.starved_s[100] += 0.225;
    EXPECT_TRUE(wait(0.25).empty()) << 0.5 + 0.25 * i;
  }
  for (int i = 0; i < 8; ++i) {
    facts_.starved_s[100] += 0.225;
    if (!wait(0.25).empty()) return;
  }
  FAIL() << "18 s, of which 2 were its own";
}

TEST_F(RankWatchTest, ALoopIsNamedInTimeWhateverTheLoadIs) {
  load_ = 30;
  runs(0, Doing::Computes);
  EXPECT_TRUE(wait(4.9).empty());
  EXPECT_FALSE(wait(1).empty());
}

TEST_F(RankWatchTest, WhatACommandWaitedForACoreIsNotLearned) {
  for (int again = 0; again < 3; ++again) {
    runs(0, Doing::Computes, 180);
    wait(0.5);
    for (int i = 0; i < 8; ++i) {
      facts_.starved_s[100] += 0.25;
      EXPECT_TRUE(wait(0.25).empty());
    }
    runs(0, Doing::Computes, 181);
    wait(0.25);
  }
  runs(0, Doing::Computes, 180);
  EXPECT_TRUE(wait(4.9).empty());
  EXPECT_FALSE(wait(1).empty());
}

TEST_F(RankWatchTest, NorDoesTimeInWhichTheLauncherDidNotRun) {
  runs(0, Doing::Computes);
  conditions_[1].stopped = true;
  wait(1);
  now_ += 1000;
  EXPECT_TRUE(wait(3).empty());
}

TEST_F(RankWatchTest, OneInADebuggersHandsIsLeftAlone) {
  runs(0, Doing::Computes);
  facts_.state = 't';
  EXPECT_TRUE(wait(100).empty());
}

TEST_F(RankWatchTest, NamesOneThatIsSlowWithinTwentySteps) {
  for (int step = 0; step < 40; ++step) {
    for (int rank = 0; rank < 4; ++rank) {
      const uint64_t busy = rank == 2 && step >= 20 ? 150'000 : 100'000;
      page(rank).busy_us[step % PlacePage::kSteps] = busy;
      page(rank).steps_done = static_cast<uint64_t>(step) + 1;
    }
    const std::vector<Verdict> found = wait(0.2);
    if (found.empty()) continue;
    EXPECT_LE(step, 39);
    EXPECT_GE(step, 25);
    EXPECT_EQ(found[0].line,
              "rank 2 on node-b is slow: busy 150 ms a step, the others 100; ranks 0, 1, 3 wait for it");
    EXPECT_TRUE(wait(10).empty()) << "once";
    return;
  }
  FAIL() << "not named";
}

TEST_F(RankWatchTest, OneThatHadToWaitForACoreIsNotSlow) {
  for (int rank = 0; rank < 4; ++rank) conditions_[static_cast<size_t>(rank)].pid = 100 + rank;
  facts_of_[102];
  for (int step = 0; step < 200; ++step) {
    for (int rank = 0; rank < 4; ++rank) {
      page(rank).busy_us[step % PlacePage::kSteps] = rank == 2 ? 250'000 : 100'000;
      page(rank).steps_done = static_cast<uint64_t>(step) + 1;
    }
    facts_of_[102].starved_s[102] += 0.150;
    EXPECT_TRUE(wait(0.25).empty()) << step;
  }
}

TEST_F(RankWatchTest, OtherLaunchersReadItsMessage) {
  runs(3, Doing::Computes);
  calls(3, 6, true);
  wait(0.25);
  const std::vector<Whereabouts> ranks = RankWatch::parse_message(watch_->message());
  ASSERT_EQ(ranks.size(), 4u);
  EXPECT_EQ(ranks[3].command, "matmul");
  EXPECT_EQ(ranks[3].block, 5);
  EXPECT_EQ(ranks[3].index, 180);
  ASSERT_EQ(ranks[3].calls.size(), 1u);
  EXPECT_EQ(ranks[3].calls[0].count, 6);
  EXPECT_TRUE(ranks[3].calls[0].inside);
  EXPECT_TRUE(RankWatch::parse_message("[{\"rank\": \"x\", \"calls\": 7}, 3, {").empty());
  EXPECT_EQ(RankWatch::parse_message("[{\"rank\": \"x\", \"calls\": [[9]]}, 3]").size(), 2u);
}

}  // namespace
}  // namespace tandem
