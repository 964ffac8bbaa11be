#include "tandem/compile/passes/fp8.h"

#include <gtest/gtest.h>

#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/fuse.h"
#include "tandem/compile/passes/overwrite_gradients.h"
#include "tandem/compile/passes/precision.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/ir/verify.h"
#include "tandem/models/model.h"

namespace tandem {
namespace {

ModelConfig llama(int64_t width = 32) {
  ModelConfig config;
  config.family = Family::Llama;
  config.layers = 2;
  config.width = width;
  config.heads = 2;
  config.kv_heads = 1;
  config.ffn = 64;
  config.context = 16;
  config.vocab = 48;
  return config;
}

Graph differentiated(const ModelConfig& config) {
  const PrecisionPolicy policy = precision_policy(Precision::Fp8);
  return differentiate(apply_precision(build_model(config, 2), policy), policy, false);
}

int count(const Graph& graph, Op op) {
  return static_cast<int>(std::ranges::count(graph.nodes(), op, &Node::op));
}

TEST(Fp8, EveryProductOfABlocksMatrixIsQuantized) {
  Graph before = differentiated(llama());
  before = overwrite_gradients(std::move(before));
  ASSERT_TRUE(overwrites_gradients(before));
  const Graph graph = quantize_products(before);
  verify(graph, "fp8");
  EXPECT_EQ(fp8_weight_names(build_model(llama(), 2)).size(), 8u);
  EXPECT_EQ(count(graph, Op::Fp8Matmul), 16);    // forward, and the gradients of activations
  EXPECT_EQ(count(graph, Op::Fp8MatmulAcc), 8);  // of weights
  EXPECT_EQ(count(graph, Op::Matmul), 2) << "the vocabulary's projection stays as it is";
  EXPECT_EQ(count(graph, Op::MatmulAcc), 1);
  EXPECT_EQ(count(graph, Op::Fp8Quantize), 16 + 16) << "8 activations, 8 gradients; weights at each use";
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::Fp8MatmulAcc) {
      EXPECT_EQ(node.attrs.integer_or("fresh", 0), 1);
      EXPECT_EQ(graph.type(node.inputs[1]).dtype, DType::F8E5M2);
      EXPECT_EQ(graph.type(node.inputs[2]).dtype, DType::F8E4M3);
    }
  }
}

TEST(Fp8, SwigluJoinsItsQuantizing) {
  const Graph graph = fuse(quantize_products(differentiated(llama())));
  verify(graph, "fuse");
  EXPECT_EQ(count(graph, Op::Swiglu) + count(graph, Op::SwigluGrad), 0);
  EXPECT_EQ(count(graph, Op::Fp8Swiglu), 2);
  EXPECT_EQ(count(graph, Op::Fp8SwigluGrad), 2);
}

TEST(Fp8, WhatIsMadeAgainIsQuantizedAgain) {
  const Graph again = recompute(differentiated(llama()), {RecomputeKind::Full, 0}, GeluAgain::AsChosen);
  const Graph graph = quantize_products(again);
  verify(graph, "fp8");
  EXPECT_EQ(count(graph, Op::Fp8MatmulAcc), 8);
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::Fp8Quantize || node.inputs.size() < 3) continue;
    const bool forward = node.phase == Phase::Forward;
    if (forward) {
      EXPECT_EQ(node.attrs.integer("columns"), 0) << "nothing of forward is kept";
    }
  }
}

TEST(Fp8, SizesThatMatrixUnitsCannotTakeStayAsTheyAre) {
  const Graph before = differentiated(llama(24));
  const Graph graph = quantize_products(before);
  verify(graph, "fp8");
  EXPECT_EQ(count(graph, Op::Fp8Matmul), 0);
  EXPECT_EQ(graph.num_nodes(), before.num_nodes());
}

}  // namespace
}  // namespace tandem
