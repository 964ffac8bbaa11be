// Dropout drops the same elements however ranks share the step.
#include <gtest/gtest.h>

#include "tandem/kernels/cpu/register.h"
#include "tandem/models/family_models_test.h"
#include "tandem/runtime/rank_sessions_test.h"

namespace tandem {
namespace {

using Adjust = std::function<void(CompileOptions&)>;

Graph model(ModelConfig config) {
  config.dropout = 0.2;
  return build_model(config, 2);
}

Weights train(const MeshShape& shape, Strategy strategy, const Graph& graph, const Adjust& adjust = {}) {
  return train_ranks(
             shape, strategy, cpu::all_kernels(),
             [&](CompileOptions& options) {
               if (adjust) adjust(options);
             },
             graph)
      .weights;
}

TEST(DropoutRanks, EveryShardingRecomputationAndAPipelineHaveTheSameBits) {
  for (const ModelConfig& config : {tiny_gpt2(2), tiny_decoder()}) {
    const Graph graph = model(config);
    const auto twice = [](CompileOptions& options) { options.parallel.micro_batches = 2; };
    const Weights one = train({}, Strategy::Single, graph, twice);
    EXPECT_NE(one, train({}, Strategy::Single, build_model(config, 2), twice));
    for (RecomputeKind kind : {RecomputeKind::Full, RecomputeKind::Selective}) {
      EXPECT_EQ(one, train({}, Strategy::Single, graph, [&](CompileOptions& options) {
                  twice(options);
                  options.recompute = {kind, 0};
                }));
    }
    EXPECT_EQ(one, train({.pipeline = 2}, Strategy::Single, graph, twice));
    const Weights ddp = train({.data = 2}, Strategy::Ddp, graph);
    for (Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
      EXPECT_EQ(ddp, train({.data = 2}, strategy, graph));
  }
}

TEST(DropoutRanks, TheTensorAxisStaysCloseToOneRank) {
  const Graph graph = model(tiny_gpt2(2));
  const Weights one = train({}, Strategy::Single, graph);
  const Weights two = train({.tensor = 2}, Strategy::Single, graph);
  ASSERT_EQ(one.size(), two.size());
  for (const auto& [name, values] : one) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(two.at(name)[i], values[i], 1e-5) << name << " " << i;
  }
}

TEST(DropoutRanks, EvaluationAndGenerationDropNothing) {
  const KernelRegistry registry = cpu::all_kernels();
  CompileOptions options;
  options.choose = choose_from(registry, 1);
  const CompiledStep step = compile_step(model(tiny_gpt2(2)), options);
  const auto drops = [](const Executable& executable) {
    return std::any_of(executable.commands.begin(), executable.commands.end(),
                       [](const Command& command) { return command.op == Op::Dropout; });
  };
  EXPECT_TRUE(drops(step.pass));
  EXPECT_FALSE(drops(step.eval));
  for (const Binding& input : step.eval.inputs) EXPECT_NE(input.name, kSampleInput);
  const CompiledStep writer = compile_generation(model(tiny_gpt2(2)), options, {});
  EXPECT_FALSE(drops(writer.prefill));
  EXPECT_FALSE(drops(writer.decode));
}

}  // namespace
}  // namespace tandem
