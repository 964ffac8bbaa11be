// Every family of the llama builder on every strategy and axis, in every precision, with every recomputation,
// on the fast kernels: equal bits where sums keep their order, close where an axis changes it.
#include <gtest/gtest.h>

#include "tandem/kernels/cpu/register.h"
#include "tandem/models/family_models_test.h"
#include "tandem/runtime/rank_sessions_test.h"

namespace tandem {
namespace {

constexpr Precision kPrecisions[] = {Precision::Fp32, Precision::Bf16, Precision::Fp16};

class EveryFamily : public testing::TestWithParam<FamilyModel> {
 protected:
  struct How {
    MeshShape shape{};
    Strategy strategy = Strategy::Single;
    Precision precision = Precision::Fp32;
    Recompute recompute{};
    int64_t micro_batches = 1;
    bool chunked = false;
    bool again = false;  // gradients give outputs again
  };
  static Weights train(const How& how) {
    return train_ranks(
               how.shape, how.strategy, cpu::all_kernels(),
               [&](CompileOptions& options) {
                 options.precision = precision_policy(how.precision);
                 options.recompute = how.recompute;
                 options.parallel.micro_batches = how.micro_batches;
                 options.fuse.bias_sums = false;
                 options.fuse.outputs_again = how.again;
                 if (how.chunked) options.fuse.chunk_logits_above = 64;
               },
               build_model(GetParam().model, 2))
        .weights;
  }
  // Two steps at a rate of 1e-2: rounding of tiny gradients may turn what Adam makes of them.
  static void expect_close(const Weights& got, const Weights& want) {
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, values] : want) {
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(got.at(name)[i], values[i], 2e-5) << name << " " << i;
    }
  }
};

TEST_P(EveryFamily, HasTheSameBitsWithAnyRecomputation) {
  for (const Precision precision : kPrecisions) {
    const Weights kept = train({.precision = precision});
    for (const RecomputeKind kind : {RecomputeKind::Selective, RecomputeKind::Every, RecomputeKind::Full})
      EXPECT_TRUE(train({.precision = precision, .recompute = {kind, 2}}) == kept) << static_cast<int>(kind);
  }
}

// By the reference kernels, where the fast ones cannot.
TEST_P(EveryFamily, StaysCloseWhereGradientsGiveOutputsAgain) {
  expect_close(train({.recompute = {RecomputeKind::Selective, 0}, .again = true}), train({}));
}

TEST_P(EveryFamily, HasTheSameBitsOnEveryShardingOfTheDataAxis) {
  for (const Precision precision : kPrecisions) {
    const MeshShape two{.data = 2};
    const Weights ddp = train({.shape = two, .strategy = Strategy::Ddp, .precision = precision});
    for (const Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
      EXPECT_TRUE(train({.shape = two, .strategy = strategy, .precision = precision}) == ddp);
  }
}

TEST_P(EveryFamily, HasTheSameBitsInAPipeline) {
  EXPECT_TRUE(train({.shape = {.pipeline = 2}, .micro_batches = 2}) == train({.micro_batches = 2}));
}

TEST_P(EveryFamily, StaysCloseOnTheTensorAxisAndInChunks) {
  const Weights one = train({});
  expect_close(train({.chunked = true}), one);
  if (GetParam().model.qk_norm == QkNorm::All) return;
  expect_close(train({.shape = {.tensor = 2}}), one);
  const Weights data = train({.shape = {.data = 2}, .strategy = Strategy::Ddp});
  expect_close(train({.shape = {.data = 2, .tensor = 2, .pipeline = 2}, .strategy = Strategy::Fsdp}), data);
}

// Attention inside documents: the input that says so reaches every rank and stage.
TEST(Segments, GiveTheSameBitsInAPipelineAndStayCloseOnTheTensorAxis) {
  Builder b = Builder::for_tokens(2, 12);
  Value x = b.embedding(32, 16, /*positions=*/false);
  for (int32_t layer = 0; layer < 2; ++layer) {
    const auto block = b.block(layer);
    const Value qkv = b.linear(b.rms_norm(x, "norm"), 32, "qkv", {.bias = false, .dims = "heads,width"});
    const Value y = b.attention(b.rope(qkv, 4, 2), 4, 2, {.window = 5, .segments = b.segments()});
    x = b.add(x, b.linear(y, 16, "out", {.bias = false, .dims = "width,heads"}));
  }
  b.cross_entropy(b.linear(x, 32, "head", {.bias = false, .dims = "vocab,width"}));
  const Graph graph = b.take();
  const auto train = [&](const MeshShape& shape, int64_t micro_batches) {
    const auto adjust = [&](CompileOptions& options) { options.parallel.micro_batches = micro_batches; };
    return train_ranks(shape, Strategy::Single, cpu::all_kernels(), adjust, graph).weights;
  };
  EXPECT_TRUE(train({.pipeline = 2}, 2) == train({}, 2));
  const Weights one = train({}, 1), split = train({.tensor = 2}, 1);
  for (const auto& [name, values] : one) {
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(split.at(name)[i], values[i], 2e-5) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Llama, EveryFamily, testing::ValuesIn(family_models()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem
