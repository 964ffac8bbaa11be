#include "tandem/compile/passes/loss/mix_images.h"

#include <gtest/gtest.h>

#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/fuse.h"
#include "tandem/ir/verify.h"
#include "tandem/models/model.h"

namespace tandem {
namespace {

Graph trained(Family family) {
  ModelConfig config;
  config.family = family;
  return differentiate(build_model(config, 4));
}

TEST(MixImages, TheLossOfTrainingReadsTwoLabelsARow) {
  for (const Family family : {Family::Resnet, Family::Mlp}) {
    // However large the projection is, what reads two labels is not made part of it.
    const Graph graph = fuse(mix_images(trained(family)), {.chunk_bytes = 1});
    verify(graph, "mix");
    int losses = 0;
    for (const Node& node : graph.nodes()) {
      EXPECT_NE(node.op, Op::LinearCrossEntropyGrad);
      if (node.op != Op::CrossEntropyGrad) continue;
      ++losses;
      ASSERT_EQ(node.inputs.size(), 5u);
      EXPECT_EQ(graph.node(node.inputs[3].node).name, kPartnerInput);
      EXPECT_EQ(graph.node(node.inputs[4].node).name, kShareInput);
      EXPECT_EQ(graph.type(node.inputs[4]), (TensorType{DType::F32, Shape({4})}));
    }
    EXPECT_EQ(losses, 1);
  }
}

}  // namespace
}  // namespace tandem
