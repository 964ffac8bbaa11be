#include "tandem/compile/passes/loss/loss_stats.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/compile/commands_test.h"
#include "tandem/models/tiny_gpt2_test.h"

namespace tandem {
namespace {

CompiledStep compile(const MeshShape& shape, int rank, int64_t micro_batches) {
  CompileOptions options;
  options.parallel.at = MeshPosition::of(shape, rank);
  options.parallel.strategy = shape.data > 1 ? Strategy::Ddp : Strategy::Single;
  options.parallel.micro_batches = micro_batches;
  options.choose = choose_by_name;
  return compile_step(build_model(tiny_gpt2(2), 2), options);
}

std::vector<const Command*> sums(const Executable& executable) {
  return commands_of(executable, Op::AddStats);
}

TEST(LossStats, PassesAddThemUpAndTheUpdateTakesAndClearsTheSum) {
  const CompiledStep step = compile({.data = 2}, 1, 3);
  const Persistent* state = step.find("loss_stats");
  ASSERT_NE(state, nullptr);
  EXPECT_FALSE(state->saved);
  ASSERT_EQ(sums(step.pass).size(), 1u);
  EXPECT_TRUE(same_place(sums(step.pass)[0]->out[0], state->slice));
  ASSERT_GE(step.update.commands.size(), 3u);
  const Command &take = step.update.commands[0], &clear = step.update.commands[1];
  EXPECT_EQ(take.op, Op::AddStats);
  EXPECT_TRUE(same_place(take.in[1], state->slice));
  EXPECT_EQ(clear.op, Op::Zeros);
  EXPECT_TRUE(same_place(clear.out[0], state->slice));
  const auto squares = std::ranges::find(step.update.commands, Op::SquareSums, &Command::op);
  ASSERT_NE(squares, step.update.commands.end());
  EXPECT_TRUE(same_place(squares->in[1], take.out[0]));
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
