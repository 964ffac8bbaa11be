// Several ranks as threads of one process: sessions that talk.
#include <gtest/gtest.h>

#include "tandem/kernels/cpu/register.h"
#include "tandem/runtime/rank_sessions_test.h"

namespace tandem {
namespace {

Weights train(const MeshShape& shape, Strategy strategy, Precision precision,
              const std::function<void(ParallelOptions&)>& adjust = {}, bool outputs_again = false) {
  return train_ranks(shape, strategy, cpu::all_kernels(),
                     [&](CompileOptions& options) {
                       if (adjust) adjust(options.parallel);
                       options.precision = precision_policy(precision);
                       options.fuse.outputs_again = outputs_again;
                       if (outputs_again) options.recompute = {RecomputeKind::Selective, 0};
                     })
      .weights;
}

TEST(Ranks, EveryShardingOfTheDataAxisGivesTheSameBits) {
  for (Precision precision : {Precision::Fp32, Precision::Bf16}) {
    const MeshShape shape{.data = 3};
    const Weights ddp = train(shape, Strategy::Ddp, precision);
    ASSERT_FALSE(ddp.empty());
    for (Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
      EXPECT_EQ(ddp, train(shape, strategy, precision)) << static_cast<int>(strategy);
  }
}

TEST(Ranks, OffloadingChangesNoBit) {
  const MeshShape shape{.data = 2};
  const Weights plain = train(shape, Strategy::Fsdp, Precision::Bf16);
  EXPECT_EQ(plain, train(shape, Strategy::Fsdp, Precision::Bf16, [](ParallelOptions& parallel) {
              parallel.offload_optimizer = parallel.offload_weights = true;
            }));
  for (Strategy strategy : {Strategy::Ddp, Strategy::Zero1, Strategy::Zero2}) {
    EXPECT_EQ(plain, train(shape, strategy, Precision::Bf16,
                           [](ParallelOptions& parallel) { parallel.offload_optimizer = true; }));
  }
  EXPECT_EQ(train({}, Strategy::Single, Precision::Fp32),
            train({}, Strategy::Single, Precision::Fp32,
                  [](ParallelOptions& parallel) { parallel.offload_optimizer = true; }));
}

TEST(Ranks, ActivationsThatWaitOnTheHostChangeNoBit) {
  const auto away = [](ParallelOptions& parallel) {
    parallel.micro_batches = 2;
    parallel.offloaded_activations = 1 << 30;
  };
  const auto here = [](ParallelOptions& parallel) { parallel.micro_batches = 2; };
  for (const bool again : {false, true}) {
    for (const Strategy strategy : {Strategy::Ddp, Strategy::Fsdp}) {
      EXPECT_EQ(train({.data = 2}, strategy, Precision::Bf16, here, again),
                train({.data = 2}, strategy, Precision::Bf16, away, again));
    }
    EXPECT_EQ(train({}, Strategy::Single, Precision::Fp32, here, again),
              train({.pipeline = 2}, Strategy::Single, Precision::Fp32, away, again));
    EXPECT_EQ(train({.tensor = 2}, Strategy::Single, Precision::Fp32, here, again),
              train({.tensor = 2}, Strategy::Single, Precision::Fp32, away, again));
  }
}

TEST(Ranks, AccumulationGivesTheSameBitsForEverySharding) {
  const auto twice = [](ParallelOptions& parallel) { parallel.micro_batches = 2; };
  const Weights ddp = train({.data = 2}, Strategy::Ddp, Precision::Fp32, twice);
  for (Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
    EXPECT_EQ(ddp, train({.data = 2}, strategy, Precision::Fp32, twice));
}

TEST(Ranks, ReducingOnceAStepGivesTheSameBitsForDdpAndZero1) {
  const auto once = [](ParallelOptions& parallel) {
    parallel.micro_batches = 3;
    parallel.reduce_once = true;
  };
  const Weights ddp = train({.data = 2}, Strategy::Ddp, Precision::Fp32, once);
  EXPECT_EQ(ddp, train({.data = 2}, Strategy::Zero1, Precision::Fp32, once));
  const Weights every = train({.data = 2}, Strategy::Ddp, Precision::Fp32,
                              [](ParallelOptions& parallel) { parallel.micro_batches = 3; });
  for (const auto& [name, values] : every) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], ddp.at(name)[i], 1e-5) << name << " " << i;
  }
}

TEST(Ranks, APipelineGivesTheBitsOfOneRankThatAccumulates) {
  const auto twice = [](ParallelOptions& parallel) { parallel.micro_batches = 2; };
  EXPECT_EQ(train({}, Strategy::Single, Precision::Fp32, twice),
            train({.pipeline = 2}, Strategy::Single, Precision::Fp32, twice));
}

TEST(Ranks, OutputsThatAreGivenAgainSuitEveryStrategy) {
  const auto again = [](const MeshShape& shape, Strategy strategy, int64_t micro_batches = 1) {
    const auto adjust = [=](ParallelOptions& parallel) { parallel.micro_batches = micro_batches; };
    return train(shape, strategy, Precision::Fp32, adjust, /*outputs_again=*/true);
  };
  const Weights ddp = again({.data = 2}, Strategy::Ddp);
  for (const auto& [name, values] : train({.data = 2}, Strategy::Ddp, Precision::Fp32)) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], ddp.at(name)[i], 1e-5) << name << " " << i;
  }
  for (Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
    EXPECT_EQ(ddp, again({.data = 2}, strategy)) << static_cast<int>(strategy);
  EXPECT_EQ(again({}, Strategy::Single, 2), again({.pipeline = 2}, Strategy::Single, 2));
  const Weights one = train({}, Strategy::Single, Precision::Fp32);
  const Weights split = again({.tensor = 2}, Strategy::Single);
  for (const auto& [name, values] : one) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], split.at(name)[i], 1e-5) << name << " " << i;
  }
}

TEST(Ranks, TheTensorAxisAndMixesStayCloseToOneRank) {
  const Weights one = train({}, Strategy::Single, Precision::Fp32);
  const Weights split = train({.tensor = 2}, Strategy::Single, Precision::Fp32);
  ASSERT_EQ(one.size(), split.size());
  for (const auto& [name, values] : one) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], split.at(name)[i], 1e-5) << name << " " << i;
  }
  const Weights data = train({.data = 2}, Strategy::Ddp, Precision::Fp32);
  const Weights mixed = train({.data = 2, .tensor = 2, .pipeline = 2}, Strategy::Fsdp, Precision::Fp32);
  for (const auto& [name, values] : data) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], mixed.at(name)[i], 1e-5) << name << " " << i;
  }
}

}  // namespace
}  // namespace tandem
