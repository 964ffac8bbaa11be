#include "tandem/train/world.h"

#include <gtest/gtest.h>

#include <array>
#include <mutex>

#include "tandem/base/message_of_test.h"
#include "tandem/train/device_threads.h"
#include "tandem/train/tiny_config_test.h"

namespace tandem {
namespace {

Config config_of(std::string_view parallel) {
  return tiny_config(fmt::format("parallel: {{{}}}\ntrain: {{batch: 6, micro_batch: 1}}", parallel), 2);
}

TEST(World, OfOneAgreesWithItself) {
  const World world;
  EXPECT_EQ(world.size(), 1);
  EXPECT_TRUE(world.leads());
  EXPECT_TRUE(world.counts_loss());
  EXPECT_EQ(world.comms(), nullptr);
  EXPECT_TRUE(world.all(true, "test"));
  EXPECT_FALSE(world.all(false, "test"));
  EXPECT_EQ(world.from_lead(int64_t{7}, "test"), 7);
  EXPECT_EQ(world.from_lead(std::string("seven"), "test"), "seven");
  world.barrier("test");
  world.check();
}

TEST(World, OfSeveralAgrees) {
  std::mutex mutex;
  int seen = 0;
  run_device_threads(config_of("strategy: dp, data: 3"), [&](const World& world) {
    const int rank = world.at().rank();
    EXPECT_EQ(world.size(), 3);
    EXPECT_EQ(world.leads(), rank == 0);
    EXPECT_TRUE(world.all(true, "test"));
    EXPECT_FALSE(world.all(rank != 2, "test")) << "one refusal is enough";
    EXPECT_EQ(world.from_lead(int64_t{10 + rank}, "test"), 10);
    EXPECT_EQ(world.from_lead(std::string(static_cast<size_t>(rank + 1), 'x'), "test"), "x");
    std::array<double, 2> values{1.0, static_cast<double>(rank)};
    world.sum(values, "test");
    EXPECT_EQ(values, (std::array<double, 2>{3, 3}));
    const std::lock_guard lock(mutex);
    ++seen;
    return ExitCode::Done;
  });
  EXPECT_EQ(seen, 3);
}

TEST(World, ARankThatFailsEndsTheOthers) {
  const auto failing = [](const World& world) -> ExitCode {
    if (world.at().rank() == 1) throw DataError("rank 1 has no data");
    world.barrier("test");
    return ExitCode::Done;
  };
  EXPECT_EQ(message_of<DataError>([&] { run_in_world(config_of("strategy: dp, data: 2"), {}, failing); }),
            "rank 1 has no data");
}

TEST(World, NeedsAsManyProcessesAsTheMeshHasPlaces) {
  const std::string message =
      message_of<ConfigError>([] { join_world(config_of("strategy: ddp, data: 3, tensor: 2"), {}); });
  EXPECT_NE(message.find("data 3 x tensor 2 x pipeline 1 needs 6 ranks, found one process"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("tandem launch --nproc-per-node 6"), std::string::npos) << message;
}

}  // namespace
}  // namespace tandem
