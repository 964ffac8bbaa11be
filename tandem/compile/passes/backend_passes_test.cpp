// Passes that run only where a backend asks for them: gradients that are overwritten, and what it can fuse
// beyond the CPU.
#include <gtest/gtest.h>

#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/fuse.h"
#include "tandem/compile/passes/overwrite_gradients.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/ir/builder.h"
#include "tandem/ir/text.h"
#include "tandem/ir/verify.h"
#include "tandem/models/tiny_gpt2_test.h"

namespace tandem {
namespace {

const FuseOptions kAll{.gelu_of_product = true, .gelu_grad = true, .bias_sums = true};

int count(const Graph& graph, Op op, Phase phase = Phase::Backward) {
  int n = 0;
  for (const Node& node : graph.nodes()) n += node.op == op && node.phase == phase ? 1 : 0;
  return n;
}

Graph residual_model() {
  Builder b = Builder::for_tokens(2, 8);
  Value x = b.embedding(16, 8, false);
  for (int32_t i = 0; i < 2; ++i) {
    const auto block = b.block(i);
    x = b.add(x, b.linear(b.layer_norm(x, "norm1"), 8, "mix"));
    x = b.add(x, b.linear(b.gelu(b.linear(b.layer_norm(x, "norm2"), 32, "up")), 8, "down"));
  }
  b.cross_entropy(b.linear(b.layer_norm(x, "norm"), 16, "head", {.bias = false}));
  return b.take();
}

TEST(OverwriteGradients, MarksTheFirstOpOfEveryGradient) {
  Graph graph = differentiate(residual_model());
  graph = overwrite_gradients(graph);
  ASSERT_TRUE(overwrites_gradients(graph));
  verify(graph, "overwrite_gradients");
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::MatmulAcc || node.op == Op::BiasGrad || node.op == Op::LayerNormGrad ||
        node.op == Op::EmbeddingGrad) {
      EXPECT_EQ(node.attrs.integer_or("fresh", 0), 1) << op_name(node.op);
    }
  }
}

TEST(OverwriteGradients, LeavesTheSecondOpOfATiedTableAlone) {
  Graph graph = differentiate(parse_graph(R"(%0 = input "tokens" : i32[2,3]
%1 = input "targets" : i32[2,3]
%2 = param "embed" {init="normal:0.02"} : f32[5,4]
%3 = embedding(%0, %2) {first=0} : f32[2,3,4]
%4 = matmul(%3, %2) {trans_a=0, trans_b=1} : f32[2,3,5]
%5 = cross_entropy(%4, %1) : f64[2]
output "stats" %5
)"));
  graph = overwrite_gradients(graph);
  ASSERT_TRUE(overwrites_gradients(graph));
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::MatmulAcc || node.op == Op::EmbeddingGrad) {
      EXPECT_EQ(node.attrs.integer_or("fresh", 0), node.op == Op::MatmulAcc ? 1 : 0);
    }
  }
}

TEST(OverwriteGradients, ClearsAGradientWhoseFirstOpCannotOverwrite) {
  const Graph graph = overwrite_gradients(parse_graph(R"(%0 = input "x" : f32[1,2,2,4]
%1 = input "dy" : f32[1,2,2,4]
%2 = param "gamma" {init="ones"} : f32[4]
%3 = input "stats" : f32[2]
%4 = state "grad:gamma" {category="gradients", init="zeros"} backward : f32[4]
%5 = state "grad:beta" {category="gradients", init="zeros"} backward : f32[4]
%6, %7, %8 = group_norm_grad(%1, %0, %2, %3, %3, %4, %5) {eps=0.1, groups=2} backward : f32[1,2,2,4], f32[4], f32[4]
%9 = state "grad:b" {category="gradients", init="zeros"} backward : f32[4]
%10 = bias_grad(%9, %1) backward : f32[4]
)"));
  verify(graph, "overwrite_gradients");
  EXPECT_EQ(print(graph), R"(%0 = input "x" : f32[1,2,2,4]
%1 = input "dy" : f32[1,2,2,4]
%2 = param "gamma" {init="ones"} : f32[4]
%3 = input "stats" : f32[2]
%4 = state "grad:gamma" {category="gradients", init="zeros", transient=1} backward : f32[4]
%5 = state "grad:beta" {category="gradients", init="zeros", transient=1} backward : f32[4]
%6 = zeros(%4) {dtype="f32", shape="4"} backward : f32[4]
%7 = zeros(%5) {dtype="f32", shape="4"} backward : f32[4]
%8, %9, %10 = group_norm_grad(%1, %0, %2, %3, %3, %6, %7) {eps=0.1, groups=2} backward : f32[1,2,2,4], f32[4], f32[4]
%11 = state "grad:b" {category="gradients", init="zeros", transient=1} backward : f32[4]
%12 = bias_grad(%11, %1) {fresh=1} backward : f32[4]
)");
}

TEST(FuseBiasSums, GoIntoTheNormOfTheirOwnBlockOrTheWeightsGradient) {
  const Graph graph = fuse(differentiate(residual_model()), kAll);
  verify(graph, "fuse");
  EXPECT_EQ(count(graph, Op::BiasGrad), 0);
  // "mix" of each block is followed by norm2 of its block; "up" by a gelu, "down" by a norm outside.
  int sums = 0;
  for (const Node& node : graph.nodes()) sums += static_cast<int>(node.attrs.integer_or("sums", 0));
  EXPECT_EQ(sums, 2);
  EXPECT_EQ(count(graph, Op::MatmulBiasAcc), 4);
}

TEST(FuseBiasSums, CrossBlocksWhereThereIsNothingToAccumulate) {
  FuseOptions options = kAll;
  options.sums_across_blocks = true;
  const Graph graph = fuse(differentiate(residual_model()), options);
  verify(graph, "fuse");
  int sums = 0;
  for (const Node& node : graph.nodes()) {
    if (node.attrs.integer_or("sums", 0) == 0) continue;
    ++sums;
    EXPECT_EQ(node.outputs.back(), graph.type(node.inputs.back()));
    EXPECT_EQ(aliased_input(node, static_cast<int>(node.outputs.size()) - 1),
              static_cast<int>(node.inputs.size()) - 1);
  }
  EXPECT_EQ(sums, 4);
  EXPECT_EQ(count(graph, Op::MatmulBiasAcc), 2) << "of the up projections";
}

TEST(FuseBiasSums, GoIntoAttentionsGradientWhereItCanSum) {
  const auto check = [](bool can, bool fresh) {
    FuseOptions options = kAll;
    options.attention_sums =
        can ? [](const TensorType& qkv,
                 const Attrs& attrs) { return qkv.shape.last() == 48 && attrs.integer("heads") == 2; }
            : static_cast<bool (*)(const TensorType&, const Attrs&)>(nullptr);
    Graph graph = differentiate(build_model(tiny_gpt2(2), 2));
    if (fresh) {
      graph = overwrite_gradients(graph);
      EXPECT_TRUE(overwrites_gradients(graph));
    }
    graph = fuse(graph, options);
    verify(graph, "fuse");
    EXPECT_EQ(count(graph, Op::BiasGrad), 0);
    int sums = 0;
    for (const Node& node : graph.nodes()) {
      if (node.op != Op::AttentionGrad || node.attrs.integer_or("sums", 0) == 0) continue;
      ++sums;
      EXPECT_EQ(node.attrs.integer_or("fresh", 0), fresh ? 1 : 0) << "as its bias's gradient was";
      EXPECT_EQ(node.outputs.back(), graph.type(node.inputs.back()));
      EXPECT_EQ(aliased_input(node, 1), 4);
    }
    EXPECT_EQ(sums, can ? 2 : 0);
    EXPECT_EQ(count(graph, Op::MatmulBiasAcc), can ? 4 : 6);
  };
  check(false, true);
  check(true, true);
  check(true, false);
}

TEST(FuseGelu, ItsGradientJoinsTheProductBeforeIt) {
  const Graph graph = fuse(differentiate(residual_model()), kAll);
  EXPECT_EQ(count(graph, Op::MatmulGeluGrad), 2);
  EXPECT_EQ(count(graph, Op::GeluGrad), 0);
}

TEST(FuseGelu, StandsForItsPartsEverywhereWhereItsBitsDiffer) {
  for (RecomputeKind kind : {RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Full}) {
    const Graph graph =
        fuse(recompute(differentiate(residual_model()), {kind, 0}, GeluAgain::WithProduct), kAll);
    verify(graph, "fuse");
    for (Phase phase : {Phase::Forward, Phase::Recompute}) {
      EXPECT_EQ(count(graph, Op::Gelu, phase), 0);
    }
    EXPECT_EQ(count(graph, Op::MatmulGelu, Phase::Forward), 2);
    EXPECT_EQ(count(graph, Op::MatmulGelu, Phase::Recompute), kind == RecomputeKind::Full ? 2 : 0);
  }
}

TEST(FuseGelu, IsMadeAgainFromTheProductThatForwardStored) {
  FuseOptions options = kAll;
  options.gelu_again = true;
  for (RecomputeKind kind : {RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Full}) {
    const Graph graph =
        fuse(recompute(differentiate(residual_model()), {kind, 0}, GeluAgain::Always), options);
    verify(graph, "fuse");
    EXPECT_EQ(count(graph, Op::MatmulGelu, Phase::Forward), 2);
    EXPECT_EQ(count(graph, Op::Gelu, Phase::Forward), 0);
    // A product that is made again comes from the op that made it, so that its bits do; its gelu does not.
    EXPECT_EQ(count(graph, Op::MatmulGelu, Phase::Recompute), kind == RecomputeKind::Full ? 2 : 0);
    EXPECT_EQ(count(graph, Op::Gelu, Phase::Recompute), 2);
    for (const Node& node : graph.nodes()) {
      if (node.op != Op::Gelu) continue;
      EXPECT_EQ(graph.node(node.inputs[0].node).op, Op::MatmulGelu);
      EXPECT_EQ(node.inputs[0].index, 1) << "the product, not its gelu";
    }
    EXPECT_EQ(count(graph, Op::MatmulGeluGrad), 2);
  }
  // Where a fused kernel gives the bits of its parts, forward takes it all the same.
  const Graph same =
      fuse(recompute(differentiate(residual_model()), {}, GeluAgain::Always), {.gelu_again = true});
  EXPECT_EQ(count(same, Op::MatmulGelu, Phase::Forward), 2);
  EXPECT_EQ(count(same, Op::Gelu, Phase::Recompute), 2);
}

TEST(Differentiate, KeepsGradientsOfBlocksMatricesAsAsked) {
  PrecisionPolicy precision{.storage = DType::BF16, .block_gradients = DType::BF16};
  const Graph graph = differentiate(apply_precision(residual_model(), precision), precision);
  verify(graph, "differentiate");
  const auto type = [&](std::string_view name) { return graph.type(graph.find(name)).dtype; };
  EXPECT_EQ(type("grad:blocks.0.up.weight"), DType::BF16);
  EXPECT_EQ(type("grad:blocks.0.up.bias"), DType::F32);
  EXPECT_EQ(type("grad:embed.weight"), DType::F32);
  EXPECT_EQ(type("grad:head.weight"), DType::F32);
}

}  // namespace
}  // namespace tandem
