#include "tandem/compile/loss_stats.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/compile/pipeline.h"
#include "tandem/models/model.h"

namespace tandem {
namespace {

CompiledStep compile(const MeshShape& shape, int rank, int64_t micro_batches) {
  ModelConfig model;
  model.layers = 2;
  model.width = 16;
  model.heads = 2;
  model.context = 8;
  model.vocab = 32;
  CompileOptions options;
  options.parallel.at = MeshPosition::of(shape, rank);
  options.parallel.strategy = shape.data > 1 ? Strategy::Ddp : Strategy::Single;
  options.parallel.micro_batches = micro_batches;
  options.choose = [](const Node& node, const std::vector<TensorType>&, bool) {
    return KernelChoice{std::string(op_name(node.op)), 0};
  };
  return compile_step(build_model(model, 2), options);
}

std::vector<const Command*> sums(const Executable& executable) {
  std::vector<const Command*> found;
  for (const Command& command : executable.commands) {
    if (command.op == Op::AddStats) found.push_back(&command);
  }
  return found;
}

TEST(LossStats, PassesAddThemUpAndTheUpdateTakesAndClearsTheSum) {
  const CompiledStep step = compile({.data = 2}, 1, 3);
  const Persistent* state = step.find("loss_stats");
  ASSERT_NE(state, nullptr);
  EXPECT_FALSE(state->saved);
  ASSERT_EQ(sums(step.pass).size(), 1u);
  EXPECT_EQ(sums(step.pass)[0]->out[0].offset, state->slice.offset);
  ASSERT_GE(step.update.commands.size(), 3u);
  const Command &take = step.update.commands[0], &clear = step.update.commands[1];
  EXPECT_EQ(take.op, Op::AddStats);
  EXPECT_EQ(take.in[1].offset, state->slice.offset);
  EXPECT_EQ(clear.op, Op::Zeros);
  EXPECT_EQ(clear.out[0].arena, state->slice.arena);
  EXPECT_EQ(clear.out[0].offset, state->slice.offset);
  const auto squares = std::ranges::find(step.update.commands, Op::SquareSums, &Command::op);
  ASSERT_NE(squares, step.update.commands.end());
  EXPECT_EQ(squares->in[1].offset, take.out[0].offset);
}

TEST(LossStats, OfAPipelineAreThoseOfTheLastStage) {
  EXPECT_EQ(compile({.pipeline = 2}, 0, 3).find("loss_stats"), nullptr);
  EXPECT_EQ(sums(compile({.pipeline = 2}, 1, 3).pass).size(), 3u) << "once a micro-batch";
}

TEST(LossStats, OfATensorAxisCountOnce) {
  EXPECT_NE(compile({.tensor = 2}, 0, 1).find("loss_stats"), nullptr);
  EXPECT_EQ(compile({.tensor = 2}, 1, 1).find("loss_stats"), nullptr);
}

TEST(LossStats, OfOneRankAreReadFromItsPasses) {
  const CompiledStep step = compile({}, 0, 3);
  EXPECT_EQ(step.find("loss_stats"), nullptr);
  EXPECT_TRUE(sums(step.update).empty());
}

}  // namespace
}  // namespace tandem
