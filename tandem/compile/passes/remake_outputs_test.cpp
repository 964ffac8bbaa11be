#include "tandem/compile/passes/remake_outputs.h"

#include <gtest/gtest.h>

#include "tandem/compile/memory_plan.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/fuse.h"
#include "tandem/compile/passes/overwrite_gradients.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/compile/passes/schedule.h"
#include "tandem/ir/text.h"
#include "tandem/ir/verify.h"
#include "tandem/models/model.h"

namespace tandem {
namespace {

const FuseOptions kAll{.gelu_of_product = true, .gelu_grad = true, .bias_sums = true, .outputs_again = true};

Graph trained(Family family, int64_t layers) {
  ModelConfig config;
  config.family = family;
  config.layers = layers;
  config.width = 64;
  config.heads = 2;
  config.context = 64;
  config.vocab = 64;
  Graph graph = differentiate(build_model(config, 4));
  graph = overwrite_gradients(graph);
  EXPECT_TRUE(overwrites_gradients(graph));
  return graph;
}

int count_again(const Graph& graph, Op op) {
  int count = 0;
  for (const Node& node : graph.nodes())
    count += node.op == op && node.attrs.integer_or("again", 0) != 0 ? 1 : 0;
  return count;
}

int count(const Graph& graph, Op op, Phase phase) {
  int count = 0;
  for (const Node& node : graph.nodes()) count += node.op == op && node.phase == phase ? 1 : 0;
  return count;
}

// Whether anything in backward reads output 0 of a forward op of this kind.
bool read_in_backward(const Graph& graph, Op op) {
  for (const Node& node : graph.nodes()) {
    for (Value input : node.inputs) {
      const Node& source = graph.node(input.node);
      if (node.phase != Phase::Forward && source.phase == Phase::Forward && source.op == op &&
          source.block != kNoBlock && input.index == 0)
        return true;
    }
  }
  return false;
}

TEST(RemakeOutputs, SwigluGivesWhatTheGradientOfTheNextWeightReads) {
  const Graph graph = remake_outputs(parse_graph(R"(%0 = input "gate_up" : f32[6,8]
%1 = input "dy" backward : f32[6,3]
%2 = param "w" {init="zeros"} : f32[3,4]
%3 = swiglu(%0) block 0 : f32[6,4]
%4 = matmul(%3, %2) {trans_a=0, trans_b=1} : f32[6,3]
%5 = state "grad:w" {category="gradients", init="zeros"} backward : f32[3,4]
%6 = matmul_acc(%5, %1, %3) {trans_a=1, trans_b=0} backward : f32[3,4]
%7 = matmul(%1, %2) {trans_a=0, trans_b=0} backward : f32[6,4]
%8 = swiglu_grad(%7, %0) backward : f32[6,8]
output "y" %4
output "dx" %8
)"));
  verify(graph, "again");
  EXPECT_EQ(print(graph), R"(%0 = input "gate_up" : f32[6,8]
%1 = input "dy" backward : f32[6,3]
%2 = param "w" {init="zeros"} : f32[3,4]
%3 = swiglu(%0) block 0 : f32[6,4]
%4 = matmul(%3, %2) {trans_a=0, trans_b=1} : f32[6,3]
%5 = state "grad:w" {category="gradients", init="zeros"} backward : f32[3,4]
%6 = matmul(%1, %2) {trans_a=0, trans_b=0} backward : f32[6,4]
%7, %8 = swiglu_grad(%6, %0) {again=1} backward : f32[6,8], f32[6,4]
%9 = matmul_acc(%5, %1, %8) {trans_a=1, trans_b=0} backward : f32[3,4]
output "y" %4
output "dx" %7
)");
}

TEST(RemakeOutputs, LeavesAnOutputAloneThatSomethingReadsBeforeItCouldBeGiven) {
  // The product's result is added to before the gradient of SwiGLU is there.
  const std::string text = R"(%0 = input "gate_up" : f32[6,8]
%1 = input "dy" backward : f32[6,3]
%2 = input "ids" : i32[6]
%3 = input "rows" : f32[6,4]
%4 = param "w" {init="zeros"} : f32[3,4]
%5 = swiglu(%0) block 0 : f32[6,4]
%6 = state "grad:w" {category="gradients", init="zeros"} backward : f32[3,4]
%7 = matmul_acc(%6, %1, %5) {trans_a=1, trans_b=0} backward : f32[3,4]
%8 = embedding_grad(%7, %2, %3) {first=0} backward : f32[3,4]
%9 = matmul(%1, %4) {trans_a=0, trans_b=0} backward : f32[6,4]
%10 = swiglu_grad(%9, %0) backward : f32[6,8]
output "dx" %10
)";
  EXPECT_EQ(print(remake_outputs(parse_graph(text))), text);
}

TEST(RemakeOutputs, NormsOfAllBlocksButNotTheOneBeforeTheLoss) {
  const Graph gpt2 = remake_outputs(trained(Family::Gpt2, 3));
  verify(gpt2, "again");
  EXPECT_EQ(count_again(gpt2, Op::LayerNormGrad), 6);
  EXPECT_FALSE(read_in_backward(gpt2, Op::LayerNorm));
  const Graph llama = remake_outputs(trained(Family::Llama, 3));
  verify(llama, "again");
  EXPECT_EQ(count_again(llama, Op::RmsNormGrad), 6);
  EXPECT_EQ(count_again(llama, Op::SwigluGrad), 3);
  EXPECT_FALSE(read_in_backward(llama, Op::RmsNorm));
  EXPECT_FALSE(read_in_backward(llama, Op::Swiglu));
}

TEST(RemakeOutputs, GoesTogetherWithEveryFusion) {
  for (Family family : {Family::Gpt2, Family::Llama}) {
    const Graph graph = schedule(fuse(remake_outputs(trained(family, 3)), kAll));
    verify(graph, "fuse");
    for (const Node& node : graph.nodes()) {
      if (node.op != Op::LayerNormGrad && node.op != Op::RmsNormGrad) continue;
      const int own = node.op == Op::LayerNormGrad ? 3 : 2;
      const bool again = node.attrs.integer_or("again", 0) != 0, sums = node.attrs.integer_or("sums", 0) != 0;
      ASSERT_EQ(static_cast<int>(node.outputs.size()), own + (again ? 1 : 0) + (sums ? 1 : 0));
      if (again) {
        EXPECT_EQ(aliased_input(node, own), -1) << "y is not in place";
        EXPECT_EQ(node.outputs[static_cast<size_t>(own)], node.outputs[0]);
      }
      if (sums) {
        EXPECT_EQ(aliased_input(node, static_cast<int>(node.outputs.size()) - 1),
                  static_cast<int>(node.inputs.size()) - 1);
      }
    }
  }
}

TEST(RemakeOutputs, LeavesSelectiveRecomputationOnlyTheRest) {
  const Recompute selective{RecomputeKind::Selective, 0};
  const Graph llama = recompute(remake_outputs(trained(Family::Llama, 3)), selective);
  for (const Node& node : llama.nodes()) EXPECT_NE(node.phase, Phase::Recompute) << op_name(node.op);
  const Graph gpt2 = recompute(remake_outputs(trained(Family::Gpt2, 3)), selective);
  verify(gpt2, "recompute");
  EXPECT_EQ(count(gpt2, Op::LayerNorm, Phase::Recompute), 0);
  EXPECT_EQ(count(gpt2, Op::Gelu, Phase::Recompute), 3);
}

TEST(RemakeOutputs, SavesMoreThanAQuarterOfLlamasActivations) {
  const auto bytes = [](const Graph& graph) {
    PersistentLayout layout;
    layout.add(graph);
    return static_cast<double>(plan_memory(graph, layout).sizes[static_cast<size_t>(Arena::Activations)]);
  };
  const Graph graph = trained(Family::Llama, 12);
  EXPECT_LT(bytes(schedule(fuse(remake_outputs(graph), kAll))), 0.75 * bytes(schedule(fuse(graph, kAll))));
}

}  // namespace
}  // namespace tandem
