#include "tandem/plan/simulate.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem::plan {
namespace {

Item kernel(double seconds, std::vector<Wait> waits = {}) {
  return {.kind = Kind::Kernel, .stream = kComputeStream, .seconds = seconds, .waits = std::move(waits)};
}
Item gather(double seconds) {
  return {.kind = Kind::Collective, .axis = Axis::Data, .stream = kDataStream, .seconds = seconds};
}
Item send(int peer, double seconds) {
  return {
      .kind = Kind::Send, .axis = Axis::Pipeline, .stream = kSendStream, .peer = peer, .seconds = seconds};
}
Item recv(int peer) {
  return {.kind = Kind::Recv, .axis = Axis::Pipeline, .stream = kComputeStream, .peer = peer};
}
Item world(double seconds) {
  return {.kind = Kind::World, .axis = Axis::World, .stream = kComputeStream, .seconds = seconds};
}

Simulation run(const std::vector<std::vector<Item>>& ranks, int times = 1) {
  std::vector<Program> programs;
  for (const std::vector<Item>& items : ranks) programs.push_back({{&items, times}});
  const Simulation result = simulate(programs, {.launch = 0, .slowdown = 0});
  for (const RankTime& rank : result.ranks) EXPECT_DOUBLE_EQ(rank.parts.total(), result.seconds);
  return result;
}

TEST(Simulate, WhatIsHiddenCostsNothing) {
  // The gather runs beside the first kernel; the second waits for the rest of it.
  const Simulation hidden = run({{gather(2), kernel(3), kernel(1, {{kDataStream, 0}})}});
  EXPECT_DOUBLE_EQ(hidden.seconds, 4);
  const Simulation exposed = run({{gather(5), kernel(3), kernel(1, {{kDataStream, 0}})}});
  EXPECT_DOUBLE_EQ(exposed.seconds, 6);
  EXPECT_DOUBLE_EQ(exposed.ranks[0].parts.comm_data, 2);
  EXPECT_DOUBLE_EQ(exposed.ranks[0].parts.compute, 4);
}

TEST(Simulate, AStreamRunsInOrderAndAfterTheComputationBeforeIt) {
  const Simulation result =
      run({{kernel(1), gather(2), gather(3), kernel(1, {{kDataStream, 1}}), kernel(1)}});
  // The first gather ends at 3, the second at 6; the run ends with the last stream.
  EXPECT_DOUBLE_EQ(result.seconds, 6);
  EXPECT_DOUBLE_EQ(result.ranks[0].parts.comm_data, 2 + 1);
}

TEST(Simulate, APipelineOfTwoStagesFillsAndDrains) {
  // m micro-batches through two stages: (m + 1) forwards and backwards of 1 and 2 seconds.
  const int m = 3;
  std::vector<Item> first, last;
  for (int i = 0; i < 2; ++i) {
    first.push_back(kernel(1));
    first.push_back(send(1, 0));
  }
  for (int i = 0; i < m; ++i) {
    first.push_back(recv(1));
    first.push_back(kernel(2));
    if (i + 2 < m) {
      first.push_back(kernel(1));
      first.push_back(send(1, 0));
    }
    last.push_back(recv(0));
    last.push_back(kernel(1));
    last.push_back(kernel(2));
    last.push_back(send(0, 0));
  }
  const Simulation result = run({first, last});
  EXPECT_DOUBLE_EQ(result.seconds, (m + 1) * 3.0);
  EXPECT_DOUBLE_EQ(result.ranks[0].parts.bubble, 3);
  EXPECT_DOUBLE_EQ(result.ranks[1].parts.bubble, 3);
}

TEST(Simulate, ARecvWaitsForTheTransfer) {
  const Simulation result = run({{kernel(2), send(1, 0.5)}, {recv(0), kernel(1)}});
  EXPECT_DOUBLE_EQ(result.seconds, 3.5);
  EXPECT_DOUBLE_EQ(result.ranks[1].parts.bubble, 2);
  EXPECT_DOUBLE_EQ(result.ranks[1].parts.comm_pipeline, 0.5);
}

TEST(Simulate, AllRanksMeet) {
  const Simulation result = run({{kernel(2), world(1), kernel(1)}, {kernel(5), world(1), kernel(1)}}, 2);
  EXPECT_DOUBLE_EQ(result.seconds, 14);
  EXPECT_DOUBLE_EQ(result.ranks[0].parts.bubble, 6);
}

TEST(Simulate, RanksThatWaitForEachOtherAreABug) {
  EXPECT_THROW(run({{recv(1), send(1, 1)}, {recv(0), send(0, 1)}}), BugError);
}

TEST(Simulate, ComputationBesideACollectiveIsSlower) {
  const std::vector<Item> items = {gather(1), kernel(3)};
  const std::vector<Program> programs = {{{&items, 1}}};
  const Simulation result = simulate(programs, {.launch = 0, .slowdown = 0.25});
  EXPECT_DOUBLE_EQ(result.seconds, 1 + 3 - 1 / 1.25);
}

TEST(Simulate, ACpuThatIssuesSlowlyIsWaitedFor) {
  const std::vector<Item> items = {kernel(1), kernel(1), kernel(10), kernel(1)};
  const std::vector<Program> programs = {{{&items, 1}}};
  const Simulation result = simulate(programs, {.launch = 0, .issue = 3, .slowdown = 0});
  // Issued at 3, 6, 9 and 12; the last is issued while the third runs.
  EXPECT_DOUBLE_EQ(result.seconds, 20);
  EXPECT_DOUBLE_EQ(result.ranks[0].parts.host, 3 + 2 + 2);
  EXPECT_DOUBLE_EQ(result.ranks[0].parts.compute, 13);
}

}  // namespace
}  // namespace tandem::plan
