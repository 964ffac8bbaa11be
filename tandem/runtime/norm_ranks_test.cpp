// Optimizers that read norms of whole parameters, and one that averages, on several ranks that each hold a
// part.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tandem/kernels/cpu/register.h"
#include "tandem/models/family_models_test.h"
#include "tandem/runtime/rank_sessions_test.h"

namespace tandem {
namespace {

using Adjust = std::function<void(CompileOptions&)>;

Weights train(OptimizerKind optimizer, const MeshShape& shape, Strategy strategy, const Adjust& adjust = {},
              const Graph& forward = build_model(tiny_gpt2(2), 2)) {
  const auto options = [&](CompileOptions& made) {
    made.optimizer = optimizer;
    if (adjust) adjust(made);
  };
  return train_ranks(shape, strategy, cpu::all_kernels(), options, forward).weights;
}

constexpr OptimizerKind kKinds[] = {OptimizerKind::Lamb, OptimizerKind::Lars, OptimizerKind::ScheduleFree,
                                    OptimizerKind::Adafactor};

TEST(NormRanks, EveryShardingOfTheDataAxisGivesTheSameBits) {
  for (OptimizerKind kind : kKinds) {
    for (StateType type : {StateType::Fp32, StateType::Int8}) {
      const OptimizerEntry& entry = optimizer_entry(kind);
      if (type == StateType::Int8 && (entry.averages || entry.factored)) continue;
      for (Precision precision : {Precision::Fp32, Precision::Bf16}) {
        const auto adjust = [&](CompileOptions& options) {
          options.state_type = type;
          options.precision = precision_policy(precision);
        };
        const Weights ddp = train(kind, {.data = 3}, Strategy::Ddp, adjust);
        EXPECT_TRUE(ddp.contains("blocks.0.qkv.weight"));
        for (Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
          EXPECT_EQ(ddp, train(kind, {.data = 3}, strategy, adjust)) << static_cast<int>(strategy);
      }
    }
  }
}

TEST(NormRanks, ReducingOnceGivesTheSameBitsForEverySharding) {
  const auto once = [](CompileOptions& options) {
    options.parallel.micro_batches = 2;
    options.parallel.reduce_once = true;
  };
  EXPECT_EQ(train(OptimizerKind::Lamb, {.data = 2}, Strategy::Ddp, once),
            train(OptimizerKind::Lamb, {.data = 2}, Strategy::Zero1, once));
}

TEST(NormRanks, APipelineAndRecomputationGiveTheBitsOfOneRank) {
  const auto twice = [](CompileOptions& options) { options.parallel.micro_batches = 2; };
  for (OptimizerKind kind : kKinds) {
    const Weights one = train(kind, {}, Strategy::Single, twice);
    EXPECT_EQ(one, train(kind, {.pipeline = 2}, Strategy::Single, twice));
    EXPECT_EQ(one, train(kind, {}, Strategy::Single, [&](CompileOptions& options) {
                twice(options);
                options.recompute = {RecomputeKind::Full, 0};
              }));
  }
}

// The norms are those of logical tensors: a rank of the tensor axis that took its part for the whole would
// step twice as far or half as far. Few elements may differ: those whose gradients are rounding errors.
TEST(NormRanks, TheTensorAxisStaysCloseToOneRank) {
  for (OptimizerKind kind : kKinds) {
    for (const ModelConfig& model : {tiny_gpt2(2), tiny_decoder()}) {
      const Graph forward = build_model(model, 2);
      const Weights one = train(kind, {}, Strategy::Single, {}, forward);
      const Weights two = train(kind, {.tensor = 2}, Strategy::Single, {}, forward);
      for (const auto& [name, values] : one) {
        const std::vector<float>& others = two.at(name);
        size_t apart = 0;
        for (size_t i = 0; i < values.size(); ++i) apart += std::fabs(values[i] - others[i]) > 1e-5 ? 1 : 0;
        EXPECT_LE(apart, std::max<size_t>(1, values.size() / 50)) << name;
      }
    }
  }
}

}  // namespace
}  // namespace tandem
