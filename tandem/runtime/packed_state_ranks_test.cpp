// Optimizer states in fewer bits than fp32, on one rank and on several.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/kernels/cpu/register.h"
#include "tandem/runtime/rank_sessions_test.h"

namespace tandem {
namespace {

using Adjust = std::function<void(CompileOptions&)>;

RankedRun train(StateType type, const MeshShape& shape, Strategy strategy, const Adjust& adjust = {}) {
  return train_ranks(shape, strategy, cpu::all_kernels(), [&](CompileOptions& options) {
    options.state_type = type;
    if (adjust) adjust(options);
  });
}

TEST(PackedStateRanks, EveryShardingOfTheDataAxisGivesTheSameBits) {
  for (StateType type : {StateType::Bf16, StateType::Int8}) {
    for (OptimizerKind optimizer : {OptimizerKind::AdamW, OptimizerKind::Sgd, OptimizerKind::Lion}) {
      const auto adjust = [&](CompileOptions& options) {
        options.optimizer = optimizer;
        options.precision = precision_policy(Precision::Bf16);
      };
      for (int ranks : {2, 3}) {
        const Weights ddp = train(type, {.data = ranks}, Strategy::Ddp, adjust).weights;
        EXPECT_TRUE(ddp.contains("moment1:blocks.0.qkv.weight"));
        for (Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
          EXPECT_EQ(ddp, train(type, {.data = ranks}, strategy, adjust).weights) << ranks;
        EXPECT_EQ(ddp, train(type, {.data = ranks}, Strategy::Fsdp, [&](CompileOptions& options) {
                         adjust(options);
                         options.parallel.offload_optimizer = true;
                       }).weights);
      }
    }
  }
}

// Which elements share a scale, and how each is rounded, goes by the parameter and not by the ranks.
TEST(PackedStateRanks, APipelineGivesTheBitsOfOneRankThatAccumulates) {
  const auto twice = [](CompileOptions& options) { options.parallel.micro_batches = 2; };
  for (StateType type : {StateType::Bf16, StateType::Int8}) {
    EXPECT_EQ(train(type, {}, Strategy::Single, twice).weights,
              train(type, {.pipeline = 2}, Strategy::Single, twice).weights);
  }
}

// But for a few elements whose gradients are rounding errors beside those of their block: AdamW takes a whole
// step by their sign.
TEST(PackedStateRanks, StaysNearFp32OnTheTensorAxisToo) {
  const Weights wide = train(StateType::Fp32, {}, Strategy::Single).weights;
  for (StateType type : {StateType::Bf16, StateType::Int8}) {
    for (const MeshShape& shape : {MeshShape{}, MeshShape{.tensor = 2}}) {
      const Weights got = train(type, shape, Strategy::Single).weights;
      size_t apart = 0, elems = 0;
      for (const auto& [name, values] : wide) {
        if (name.find(':') != std::string::npos) continue;  // weights only
        elems += values.size();
        for (size_t i = 0; i < values.size(); ++i)
          apart += std::fabs(got.at(name)[i] - values[i]) > 3e-3 ? 1 : 0;
      }
      EXPECT_LT(apart, elems / 50);
    }
  }
}

TEST(PackedStateRanks, TakesAHalfOrAQuarterOfTheMemory) {
  const auto arena = [](StateType type) {
    // Large enough that alignment does not count.
    ModelConfig config = tiny_gpt2(2);
    config.width = 128;
    CompileOptions options;
    options.state_type = type;
    const KernelRegistry registry = cpu::all_kernels();
    options.choose = choose_from(registry, 1);
    const CompiledStep step = compile_step(build_model(config, 2), options);
    return static_cast<double>(step.sizes[static_cast<size_t>(Arena::Optimizer)]);
  };
  EXPECT_NEAR(arena(StateType::Bf16) / arena(StateType::Fp32), 0.5, 0.01);
  EXPECT_LT(arena(StateType::Int8) / arena(StateType::Fp32), 0.27);
}

}  // namespace
}  // namespace tandem
