// The moving average of weights is the same however ranks share the step.
#include <gtest/gtest.h>

#include "tandem/kernels/cpu/register.h"
#include "tandem/runtime/rank_sessions_test.h"

namespace tandem {
namespace {

using Adjust = std::function<void(CompileOptions&)>;

RankedRun run(const MeshShape& shape, Strategy strategy, const Adjust& adjust = {}) {
  return train_ranks(shape, strategy, cpu::all_kernels(), [&](CompileOptions& options) {
    options.ema = 0.75;
    if (adjust) adjust(options);
  });
}

TEST(EmaRanks, EveryShardingOfTheDataAxisGivesTheSameBits) {
  for (OptimizerKind optimizer : {OptimizerKind::AdamW, OptimizerKind::Muon}) {
    for (Precision precision : {Precision::Fp32, Precision::Bf16, Precision::Fp16}) {
      const auto adjust = [&](CompileOptions& options) {
        options.optimizer = optimizer;
        options.precision = precision_policy(precision);
      };
      const Weights ddp = run({.data = 3}, Strategy::Ddp, adjust).weights;
      EXPECT_TRUE(ddp.contains("ema:blocks.0.qkv.weight"));
      EXPECT_NE(ddp.at("ema:blocks.0.qkv.weight"), ddp.at("blocks.0.qkv.weight"));
      for (Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
        EXPECT_EQ(ddp, run({.data = 3}, strategy, adjust).weights) << static_cast<int>(strategy);
    }
  }
}

TEST(EmaRanks, OffloadingAndAPipelineChangeNoBit) {
  const auto twice = [](CompileOptions& options) { options.parallel.micro_batches = 2; };
  const Weights one = run({}, Strategy::Single, twice).weights;
  EXPECT_EQ(one, run({.pipeline = 2}, Strategy::Single, twice).weights);
  EXPECT_EQ(one, run({}, Strategy::Single, [&](CompileOptions& options) {
                   twice(options);
                   options.parallel.offload_optimizer = options.parallel.offload_weights = true;
                 }).weights);
}

// Two steps: a quarter of the way from the weights after the first to those after the second.
TEST(EmaRanks, BeginsWithTheFirstUpdate) {
  const Weights two = run({}, Strategy::Single).weights;
  const Weights other = run({}, Strategy::Single, [](CompileOptions& options) { options.ema = 0.5; }).weights;
  for (const auto& [name, values] : two) {
    if (!name.starts_with("ema:")) continue;
    const std::vector<float>& last = two.at(name.substr(4));
    const std::vector<float>& half = other.at(name);
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i] - last[i], 1.5 * (half[i] - last[i]), 1e-6) << name;
  }
}

TEST(EmaRanks, IsPlannedAsMemoryOfTheOptimizer) {
  const auto bytes = [](double ema) {
    const KernelRegistry registry = cpu::all_kernels();
    CompileOptions options;
    options.choose = choose_from(registry, 1);
    options.ema = ema;
    const CompiledStep step = compile_step(build_model(tiny_gpt2(2), 2), options);
    return std::pair(step.sizes[static_cast<size_t>(Arena::Optimizer)], step.num_params);
  };
  const auto [with, params] = bytes(0.9);
  EXPECT_EQ(with, bytes(0).first + 4 * params);
}

}  // namespace
}  // namespace tandem
