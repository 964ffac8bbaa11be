#include "tandem/launch/failure.h"

#include <gtest/gtest.h>

#include <csignal>

namespace tandem {
namespace {

RankEnd end_of(int rank, double at_s, int exit_code, std::string line = "") {
  RankEnd end;
  end.rank = rank;
  end.at_s = at_s;
  end.exit_code = exit_code;
  if (!line.empty()) end.last_lines = {line};
  return end;
}

RankEnd death_of(int rank, double at_s, int signal) {
  RankEnd end = end_of(rank, at_s, 0);
  end.signal = signal;
  return end;
}

TEST(Failure, TheFirstToFailIsTheRootCause) {
  const std::vector<RankEnd> ends = {end_of(0, 2.5, 1), end_of(1, 1.0, 1), end_of(2, 0.5, 0)};
  EXPECT_EQ(1, root_cause(ends)->rank);
  EXPECT_EQ(nullptr, root_cause(std::vector<RankEnd>{end_of(0, 1, 0)}));
}

TEST(Failure, AKilledRankComesBeforeThoseThatOnlyMissedIt) {
  const std::vector<RankEnd> ends = {end_of(0, 1.0, 1, "rank 1 is gone"), death_of(1, 1.1, SIGKILL)};
  EXPECT_EQ(1, root_cause(ends)->rank);
  const std::vector<RankEnd> later = {end_of(0, 1.0, 1), death_of(1, 9.0, SIGKILL)};
  EXPECT_EQ(0, root_cause(later)->rank);
  const std::vector<RankEnd> aborted = {end_of(0, 1.0, 1), death_of(1, 1.1, SIGABRT)};
  EXPECT_EQ(0, root_cause(aborted)->rank);
}

TEST(Failure, AnExitCodeThatSaysWhatIsWrongComesBeforeALostPeer) {
  std::vector<RankEnd> ends = {end_of(0, 1.0, 1, "rank 1 is gone"), end_of(1, 1.01, 4, "bad shard")};
  EXPECT_EQ(0, root_cause(ends)->rank);  // another program's code says nothing
  ends[1].is_ours = true;
  EXPECT_EQ(1, root_cause(ends)->rank);
}

RankEnd missing_a_peer(int rank, double at_s, std::string line) {
  RankEnd end = end_of(rank, at_s, 1, std::move(line));
  end.lost_peer = true;
  return end;
}

TEST(Failure, ARankThatMissedAPeerIsNoCauseThoughItEndedFirst) {
  const std::vector<RankEnd> ends = {end_of(0, 1.2, 1, "disk: full"),
                                     missing_a_peer(1, 1.0, "barrier: disk: full"),
                                     missing_a_peer(2, 1.1, "recv: disk: full")};
  const RankEnd* root = root_cause(ends);
  ASSERT_EQ(0, root->rank);
  EXPECT_EQ("rank 0 failed with exit code 1: disk: full", describe_failure(*root, ends));
  EXPECT_EQ((std::vector<std::string>{"after it ranks 1, 2 failed for want of a peer"}),
            describe_others(root, ends));
  EXPECT_TRUE(is_alone(*root, ends));
  const std::vector<RankEnd> later = {death_of(0, 3.0, SIGSEGV), missing_a_peer(1, 1.0, "x")};
  EXPECT_EQ(0, root_cause(later)->rank);
  const std::vector<RankEnd> all = {missing_a_peer(0, 1.2, "x"), missing_a_peer(1, 1.0, "y")};
  EXPECT_EQ(1, root_cause(all)->rank);
}

TEST(Failure, ARankThatTookLongToEndIsTheCauseWhereTheOthersMissedAPeer) {
  std::vector<RankEnd> ends = {end_of(0, 3.0, 4, "bad shard"), missing_a_peer(1, 1.0, "barrier: bad shard")};
  ends[0].told = true;
  EXPECT_EQ(0, root_cause(ends)->rank);
  EXPECT_EQ("rank 0 failed with exit code 4: bad shard", describe_failure(*root_cause(ends), ends));
  for (const int obeyed : {0, 75, 143}) {
    ends[0].exit_code = obeyed;
    EXPECT_EQ(1, root_cause(ends)->rank) << obeyed;
  }
}

TEST(Failure, AStoppedRankIsTheCauseOfWhatItsPeersFailWith) {
  RankEnd stopped = end_of(1, 0, 0);
  stopped.stopped = SIGSTOP;
  std::vector<RankEnd> ends = {missing_a_peer(0, 1.0, "rank 1 is silent"), stopped, end_of(2, 9.0, 0)};
  EXPECT_EQ(1, root_cause(ends)->rank);
  EXPECT_EQ("rank 1 was stopped (SIGSTOP): rank 1 is silent", describe_failure(*root_cause(ends), ends));
  ends[2] = end_of(2, 0.5, 1, "no");
  EXPECT_EQ(2, root_cause(ends)->rank);  // too soon for a consequence
  ends[2].at_s = 3.0;
  EXPECT_EQ(1, root_cause(ends)->rank);
  ends[2] = death_of(2, 1.5, SIGKILL);
  EXPECT_EQ(2, root_cause(ends)->rank);
  EXPECT_EQ("rank 1 was stopped (SIGSTOP) by then", describe_others(root_cause(ends), ends)[0]);
  EXPECT_EQ(nullptr, root_cause(std::vector<RankEnd>{stopped}));
}

TEST(Failure, WhoeverWasToldToStopIsNoCause) {
  std::vector<RankEnd> ends = {death_of(0, 1.0, SIGTERM), end_of(1, 1.2, 1)};
  ends[0].told = true;
  EXPECT_EQ(1, root_cause(ends)->rank);
}

TEST(Failure, IsDescribedWithTheRanksLastLine) {
  const std::vector<RankEnd> ends = {end_of(3, 1, 1, "tandem: error: disk: full")};
  EXPECT_EQ("rank 3 failed with exit code 1: disk: full", describe_failure(ends[0], ends));
  const std::vector<RankEnd> dead = {death_of(3, 1, SIGKILL)};
  EXPECT_EQ("rank 3 failed with signal 9 (SIGKILL)", describe_failure(dead[0], dead));
}

TEST(Failure, RanksThatEndedAlikeAreNamedTogether) {
  std::vector<RankEnd> ends = {end_of(0, 1, 1, "x"), end_of(1, 1, 1, "x"), end_of(2, 1, 1, "x"),
                               end_of(4, 1, 1, "x"), end_of(5, 1.5, 1, "y")};
  EXPECT_EQ("ranks 0-2, 4 failed with exit code 1: x", describe_failure(ends[0], ends));
  EXPECT_EQ((std::vector<std::string>{"after it rank 5 failed with exit code 1: y"}),
            describe_others(&ends[0], ends));
  EXPECT_FALSE(all_alike(ends[0], ends));
  ends.pop_back();
  EXPECT_TRUE(all_alike(ends[0], ends));
  EXPECT_TRUE(describe_others(&ends[0], ends).empty());
}

TEST(Failure, RanksThatHadToBeKilledAreNamed) {
  std::vector<RankEnd> ends = {end_of(0, 1, 1, "x"), death_of(1, 6, SIGKILL), death_of(2, 6, SIGKILL)};
  for (size_t i : {1, 2}) ends[i].told = ends[i].killed = true;
  EXPECT_EQ((std::vector<std::string>{"ranks 1, 2 did not stop on SIGTERM and had to be killed"}),
            describe_others(&ends[0], ends));
  ends.erase(ends.begin());
  EXPECT_EQ((std::vector<std::string>{"ranks 1, 2 did not stop on SIGTERM and had to be killed"}),
            describe_others(nullptr, ends));  // another node's failure
}

}  // namespace
}  // namespace tandem
