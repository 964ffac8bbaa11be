// Muon on several ranks: each works on some matrices, and all end with the same weights.
#include <gtest/gtest.h>

#include "tandem/kernels/cpu/register.h"
#include "tandem/models/family_models_test.h"
#include "tandem/runtime/rank_sessions_test.h"

namespace tandem {
namespace {

using Adjust = std::function<void(CompileOptions&)>;

Weights train(const MeshShape& shape, Strategy strategy, const Adjust& adjust = {},
              const Graph& forward = build_model(tiny_gpt2(2), 2)) {
  return train_ranks(
             shape, strategy, cpu::all_kernels(),
             [&](CompileOptions& options) {
               options.optimizer = OptimizerKind::Muon;
               if (adjust) adjust(options);
             },
             forward)
      .weights;
}

void expect_near(const Weights& got, const Weights& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, values] : want) {
    const std::vector<float>& others = got.at(name);
    ASSERT_EQ(others.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(others[i], values[i], tolerance) << name << " " << i;
  }
}

TEST(MuonRanks, EveryShardingOfTheDataAxisGivesTheSameBits) {
  for (int ranks : {2, 3}) {
    for (Precision precision : {Precision::Fp32, Precision::Bf16, Precision::Fp16}) {
      const auto adjust = [&](CompileOptions& options) { options.precision = precision_policy(precision); };
      const Weights ddp = train({.data = ranks}, Strategy::Ddp, adjust);
      EXPECT_TRUE(ddp.contains("moment1:blocks.0.qkv.weight"));
      EXPECT_FALSE(ddp.contains("moment2:blocks.0.qkv.weight"));
      EXPECT_TRUE(ddp.contains("moment2:blocks.0.qkv.bias"));
      for (Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
        EXPECT_EQ(ddp, train({.data = ranks}, strategy, adjust)) << ranks << static_cast<int>(strategy);
    }
  }
}

TEST(MuonRanks, AccumulatingAndReducingOnceGiveTheSameBitsForEverySharding) {
  for (bool once : {false, true}) {
    const auto adjust = [&](CompileOptions& options) {
      options.parallel.micro_batches = 2;
      options.parallel.reduce_once = once;
    };
    const Weights ddp = train({.data = 2}, Strategy::Ddp, adjust);
    for (Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp}) {
      if (once && strategy != Strategy::Zero1) continue;
      EXPECT_EQ(ddp, train({.data = 2}, strategy, adjust)) << static_cast<int>(strategy);
    }
  }
}

TEST(MuonRanks, OffloadingChangesNoBit) {
  const auto bf16 = [](CompileOptions& options) { options.precision = precision_policy(Precision::Bf16); };
  const auto offloaded = [&](CompileOptions& options) {
    bf16(options);
    options.parallel.offload_optimizer = true;
  };
  const Weights plain = train({.data = 2}, Strategy::Fsdp, bf16);
  for (Strategy strategy : {Strategy::Ddp, Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
    EXPECT_EQ(plain, train({.data = 2}, strategy, offloaded)) << static_cast<int>(strategy);
  EXPECT_EQ(plain, train({.data = 2}, Strategy::Fsdp, [&](CompileOptions& options) {
              offloaded(options);
              options.parallel.offload_weights = true;
            }));
  EXPECT_EQ(train({}, Strategy::Single, bf16), train({}, Strategy::Single, offloaded));
}

TEST(MuonRanks, RecomputationAndAPipelineChangeNoBit) {
  const auto twice = [](CompileOptions& options) { options.parallel.micro_batches = 2; };
  const Weights one = train({}, Strategy::Single, twice);
  EXPECT_EQ(one, train({.pipeline = 2}, Strategy::Single, twice));
  EXPECT_EQ(one, train({}, Strategy::Single, [&](CompileOptions& options) {
              twice(options);
              options.recompute = {RecomputeKind::Full, 0};
            }));
}

TEST(MuonRanks, TheTensorAxisAndMixesStayCloseToOneRank) {
  for (const ModelConfig& model : {tiny_gpt2(2), tiny_decoder()}) {
    const Graph forward = build_model(model, 2);
    const Weights one = train({}, Strategy::Single, {}, forward);
    expect_near(train({.tensor = 2}, Strategy::Single, {}, forward), one, 1e-5);
    const Weights data = train({.data = 2}, Strategy::Ddp, {}, forward);
    expect_near(train({.data = 2, .tensor = 2, .pipeline = 2}, Strategy::Fsdp, {}, forward), data, 1e-5);
    expect_near(train({.data = 2, .tensor = 2}, Strategy::Ddp, {}, forward), data, 1e-5);
  }
}

TEST(MuonRanks, PlanWhatTheyAllocateAndCountTheirProducts) {
  for (Strategy strategy : {Strategy::Ddp, Strategy::Fsdp}) {
    const RankedRun run = train_ranks({.data = 3}, strategy, cpu::all_kernels(), [](CompileOptions& options) {
      options.optimizer = OptimizerKind::Muon;
    });
    int64_t flops = 0;
    for (const CompiledStep& step : run.steps) {
      for (const Command& command : step.update.commands) flops += command.flops;
    }
    // 5 iterations over q, k, v and out (16 x 16), up and down (64 x 16) of two blocks.
    EXPECT_EQ(flops, 2 * 5 * (4 * 6 + 2 * 18) * int64_t{16 * 16 * 16});
  }
}

}  // namespace
}  // namespace tandem
