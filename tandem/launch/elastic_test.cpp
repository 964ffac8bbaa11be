#include "tandem/launch/elastic.h"

#include <gtest/gtest.h>

#include <csignal>
#include <utility>
#include <vector>

#include "tandem/launch/round.h"

namespace tandem {
namespace {

RankEnd end_of(int rank) {
  RankEnd end;
  end.rank = rank;
  return end;
}
RankEnd killed(int rank) {
  RankEnd end = end_of(rank);
  end.signal = SIGKILL;
  return end;
}
RankEnd missed(int rank) {
  RankEnd end = end_of(rank);
  end.exit_code = 1;
  end.lost_peer = true;
  return end;
}
RankEnd told(int rank) {
  RankEnd end = end_of(rank);
  end.signal = SIGTERM;
  end.told = true;
  return end;
}
RankEnd stopped(int rank) {
  RankEnd end = end_of(rank);
  end.stopped = SIGSTOP;
  return end;
}
RankEnd hung(int rank) {
  RankEnd end = told(rank);
  end.hinders = "matmul of block 3";
  return end;
}
RankEnd interrupted(int rank) {
  RankEnd end = end_of(rank);
  end.exit_code = 75;
  return end;
}

TEST(Elastic, GoesOnWithoutThoseThatFailedByThemselves) {
  EXPECT_EQ(ranks_left(std::vector{missed(0), killed(1), told(2), missed(3)}, 1), 3);
  EXPECT_EQ(ranks_left(std::vector{killed(0), killed(1), told(2), missed(3)}, 1), 2);
  EXPECT_EQ(ranks_left(std::vector{missed(0), stopped(1), told(2)}, 1), 2);
  EXPECT_EQ(ranks_left(std::vector{told(0), hung(1), told(2)}, 1), 2);
}

TEST(Elastic, KeepsTheOtherAxesWhole) {
  EXPECT_EQ(ranks_left(std::vector{missed(0), killed(1), told(2), missed(3)}, 2), 2);
  EXPECT_EQ(ranks_left(std::vector{killed(0), missed(1)}, 2), 2);  // fewer would not do
}

TEST(Elastic, TriesAllAgainWhereAllHaveFailed) {
  EXPECT_EQ(ranks_left(std::vector{killed(0), killed(1)}, 1), 2);
}

std::vector<int> shared(std::vector<std::pair<int, int>> left_and_most, int unit) {
  std::vector<NodeInfo> nodes;
  for (const auto& [left, most] : left_and_most) {
    nodes.emplace_back();
    nodes.back().num_ranks = left;
    nodes.back().most_ranks = most;
  }
  share_out(nodes, unit);
  std::vector<int> ranks;
  for (const NodeInfo& node : nodes) ranks.push_back(node.num_ranks);
  return ranks;
}

TEST(Elastic, TakesMultiplesFromSeveralNodes) {
  EXPECT_EQ(shared({{4, 4}, {3, 4}}, 1), (std::vector{4, 3}));
  EXPECT_EQ(shared({{4, 4}, {3, 4}}, 2), (std::vector{4, 2}));
  EXPECT_EQ(shared({{2, 2}, {2, 2}, {1, 2}}, 4), (std::vector{2, 2, 0}));
  EXPECT_EQ(shared({{1, 2}, {2, 2}}, 4), (std::vector{2, 2}));  // fewer would not do: all again
  EXPECT_EQ(shared({{1, 1}, {1, 1}}, 4), (std::vector{1, 1}));  // they say what they lack
}

TEST(Elastic, IsDoneWhenAllAre) {
  EXPECT_TRUE(all_done(std::vector<RankEnd>(2)));
  EXPECT_FALSE(all_done(std::vector{RankEnd{}, interrupted(1)}));
  EXPECT_FALSE(all_done(std::vector{told(0)}));
}

}  // namespace
}  // namespace tandem
