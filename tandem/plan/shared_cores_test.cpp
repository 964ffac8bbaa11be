#include "tandem/plan/shared_cores.h"

#include <gtest/gtest.h>

namespace tandem::plan {
namespace {

Item kernel(double seconds) {
  Item item;
  item.seconds = seconds;
  return item;
}

Item collective(double seconds, int stream, Axis axis = Axis::Data) {
  Item item;
  item.kind = Kind::Collective;
  item.axis = axis;
  item.stream = stream;
  item.seconds = seconds;
  return item;
}

Item message(Kind kind, int peer, double seconds, double bytes) {
  Item item;
  item.kind = kind;
  item.peer = peer;
  item.seconds = kind == Kind::Send ? seconds : 0;
  item.bytes = kind == Kind::Send ? bytes : 0;
  item.stream = kind == Kind::Send ? kSendStream : kComputeStream;
  return item;
}

Simulation run(const std::vector<std::vector<Item>>& stages, const MeshShape& mesh, int cores,
               int threads = 1) {
  std::vector<Program> programs;
  for (const std::vector<Item>& items : stages) programs.push_back({{&items, 1}});
  Simulation made = simulate_on_cores(programs, mesh, {.cores = cores, .threads = threads});
  for (const RankTime& rank : made.ranks) EXPECT_NEAR(rank.parts.total(), made.seconds, 1e-9);
  return made;
}

TEST(SharedCores, RanksThatOutnumberTheCoresTakeTurns) {
  const std::vector<Item> items = {kernel(1), kernel(2)};
  EXPECT_NEAR(run({items}, {.data = 2}, 2).seconds, 3, 1e-9);
  EXPECT_NEAR(run({items}, {.data = 4}, 2).seconds, 6, 1e-9);
  EXPECT_NEAR(run({items}, {.data = 8}, 2).seconds, 12, 1e-9);
  EXPECT_NEAR(run({items}, {.data = 2}, 2, /*threads=*/2).seconds, 6, 1e-9);
}

TEST(SharedCores, CollectivesBesideTheComputationTakeCoresFromIt) {
  // Two ranks on two cores: each computes for a second while its collective works for a second.
  const std::vector<Item> items = {collective(1, kDataStream), kernel(1)};
  EXPECT_NEAR(run({items}, {.data = 2}, 2).seconds, 2, 1e-9);
  EXPECT_NEAR(run({items}, {.data = 2}, 4).seconds, 1, 1e-9);
}

TEST(SharedCores, AStageThatWaitsLeavesItsCoreToOthers) {
  // Stage 0 computes, sends a large message, and stage 1 computes on it: never both at once.
  const double large = 1 << 20;
  const std::vector<Item> first = {kernel(1), message(Kind::Send, 1, 0.25, large)};
  const std::vector<Item> second = {message(Kind::Recv, 0, 0, 0), kernel(2)};
  const Simulation two = run({first, second}, {.pipeline = 2}, 2);
  EXPECT_NEAR(two.seconds, 3.25, 1e-9);
  EXPECT_NEAR(two.ranks[1].parts.bubble, 1, 1e-9);
  EXPECT_NEAR(two.ranks[1].parts.comm_pipeline, 0.25, 1e-9);
  EXPECT_NEAR(two.ranks[0].parts.bubble, 2, 1e-9);
  // On one core only the copy, on which both work, is longer.
  EXPECT_NEAR(run({first, second}, {.pipeline = 2}, 1).seconds, 3.5, 1e-9);
}

TEST(SharedCores, SmallMessagesAreGoneBeforeTheOtherSideComes) {
  const std::vector<Item> first = {message(Kind::Send, 1, 0.1, 1000), kernel(1)};
  const std::vector<Item> second = {kernel(3), message(Kind::Recv, 0, 0, 0)};
  EXPECT_NEAR(run({first, second}, {.pipeline = 2}, 4).seconds, 3.1, 1e-9);
}

TEST(SharedCores, ComputationWaitsForTheStreamThatItNames) {
  Item after = kernel(1);
  after.waits = {{kDataStream, 0}};
  const Simulation made = run({{collective(2, kDataStream), kernel(1), after}}, {.data = 2}, 4);
  EXPECT_NEAR(made.seconds, 3, 1e-9);
  EXPECT_NEAR(made.ranks[0].parts.comm_data, 1, 1e-9);
}

}  // namespace
}  // namespace tandem::plan
