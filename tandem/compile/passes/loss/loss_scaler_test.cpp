#include "tandem/compile/passes/loss/loss_scaler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/compile/commands_test.h"
#include "tandem/compile/memory_plan.h"
#include "tandem/models/tiny_gpt2_test.h"

namespace tandem {
namespace {

CompiledStep compile(int64_t window, const ParallelOptions& parallel = {}) {
  CompileOptions options;
  options.parallel = parallel;
  options.precision = {.storage = DType::F16, .loss_scale_window = window};
  options.choose = choose_by_name;
  return compile_step(build_model(tiny_gpt2(2), 2), options);
}

TEST(LossScaler, IsStateThatThePassReadsAndTheUpdateEndsWith) {
  const CompiledStep step = compile(7);
  const Persistent* state = step.find(kLossScaler);
  ASSERT_NE(state, nullptr);
  EXPECT_FALSE(state->saved) << "manifests have it";
  const auto scale = commands_of(step.pass, Op::ScaleLoss);
  ASSERT_EQ(scale.size(), 1u);
  EXPECT_TRUE(same_place(scale[0]->in[1], state->slice));
  const auto loss = std::ranges::find_if(
      step.pass.commands, [](const Command& command) { return command.op == Op::CrossEntropyGrad; });
  ASSERT_NE(loss, step.pass.commands.end());
  EXPECT_TRUE(same_place(loss->in[2], scale[0]->out[0]));
  EXPECT_EQ(step.update.commands.front().op, Op::UnscaleHyper);
  const Command& last = step.update.commands.back();
  EXPECT_EQ(last.op, Op::NextLossScale);
  EXPECT_EQ(last.attrs.integer("window"), 7);
  EXPECT_TRUE(same_place(last.out[0], state->slice));
  EXPECT_TRUE(std::ranges::any_of(step.update.outputs, [&](const Binding& output) {
    return output.name == kLossScaler && same_place(output.slice, state->slice);
  }));
}

TEST(LossScaler, OptimizerAndNormReadTheInverse) {
  const CompiledStep step = compile(7);
  const Slice& hyper = step.update.commands.front().out[0];
  for (Op op : {Op::SquareSums, Op::AdamW}) {
    const auto found = commands_of(step.update, op);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_TRUE(same_place(found[0]->in[0], hyper)) << op_name(op);
  }
}

TEST(LossScaler, TakesAFewBytesOfThePlanWhereItIs) {
  const CompiledStep with = compile(7), without = compile(0);
  EXPECT_EQ(without.find(kLossScaler), nullptr);
  for (Op op : {Op::UnscaleHyper, Op::NextLossScale}) EXPECT_TRUE(commands_of(without.update, op).empty());
  EXPECT_TRUE(commands_of(without.pass, Op::ScaleLoss).empty());
  const auto optimizer = static_cast<size_t>(Arena::Optimizer);
  EXPECT_EQ(with.sizes[optimizer] - without.sizes[optimizer], kSliceAlignment);
}

TEST(LossScaler, EvaluationKnowsNothingOfIt) {
  const CompiledStep step = compile(7);
  const Slice state = step.find(kLossScaler)->slice;
  for (const Command& command : step.eval.commands) {
    for (const Slice& slice : command.in) EXPECT_FALSE(same_place(slice, state));
    for (const Slice& slice : command.out) EXPECT_FALSE(same_place(slice, state));
  }
}

TEST(LossScaler, EveryStageKeepsItAndTheLastOneReadsIt) {
  for (int stage : {0, 1}) {
    ParallelOptions parallel;
    parallel.at.shape.pipeline = 2;
    parallel.at.pipeline = stage;
    parallel.micro_batches = 3;
    const CompiledStep step = compile(7, parallel);
    ASSERT_NE(step.find(kLossScaler), nullptr);
    EXPECT_EQ(commands_of(step.pass, Op::ScaleLoss).size(), stage == 1 ? 3u : 0u);
    EXPECT_EQ(commands_of(step.update, Op::NextLossScale).size(), 1u);
  }
}

// The optimizer's state moves to the host, the scale stays where passes read it.
TEST(LossScaler, StaysOnTheDeviceOfAnOffloadedOptimizer) {
  ParallelOptions parallel;
  parallel.offload_optimizer = true;
  const CompiledStep step = compile(7, parallel);
  EXPECT_EQ(step.find(kLossScaler)->slice.arena, Arena::Optimizer);
  EXPECT_EQ(step.sizes[static_cast<size_t>(Arena::Optimizer)], kSliceAlignment);
}

}  // namespace
}  // namespace tandem
