#include "tandem/compile/passes/norms/fuse_norm.h"

#include <gtest/gtest.h>

#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/inference.h"
#include "tandem/ir/builder.h"
#include "tandem/ir/text.h"
#include "tandem/ir/verify.h"
#include "tandem/models/model.h"

namespace tandem {
namespace {

ModelConfig resnet(bool bottleneck) {
  ModelConfig config;
  config.family = Family::Resnet;
  config.width = 8;
  config.image_size = 8;
  config.blocks = {1, 1};
  config.bottleneck = bottleneck;
  return config;
}

int count(const Graph& graph, Op op, bool with_relu = false) {
  int n = 0;
  for (const Node& node : graph.nodes())
    n += node.op == op && (!with_relu || node.attrs.integer_or("relu", 0) != 0) ? 1 : 0;
  return n;
}

int count_residuals(const Graph& graph) {
  int n = 0;
  for (const Node& node : graph.nodes()) n += node.op == Op::BatchNorm && node.inputs.size() == 6 ? 1 : 0;
  return n;
}

// The stem and both norms of each of two blocks, and the shortcut of the second, which halves the image.
TEST(FuseNorms, TakeTheReluAndTheResidualOfABlock) {
  Graph graph = differentiate(build_model(resnet(false), 2));
  EXPECT_EQ(count(graph, Op::BatchNorm), 6);
  EXPECT_EQ(count(graph, Op::Relu), 5);
  graph = fuse_norms(graph);
  verify(graph, "fuse");
  EXPECT_EQ(count(graph, Op::Relu), 0);
  EXPECT_EQ(count(graph, Op::BatchNorm), 6);
  EXPECT_EQ(count(graph, Op::BatchNorm, true), 5) << "all but one of the sum of two norms";
  EXPECT_EQ(count_residuals(graph), 2);
  // Where there is a residual, its gradient is the ReLU's, too.
  EXPECT_EQ(count(graph, Op::ReluGrad), 2);
  EXPECT_EQ(count(graph, Op::BatchNormGrad, true), 3);
}

TEST(FuseNorms, FollowEveryNormOfABottleneckAndOfEvaluation) {
  Graph graph = fuse_norms(differentiate(build_model(resnet(true), 2)));
  verify(graph, "fuse");
  EXPECT_EQ(count(graph, Op::Relu), 0);
  EXPECT_EQ(count(graph, Op::BatchNormGrad, true), 5);
  graph = fuse_norms(inference(build_model(resnet(true), 2), false));
  verify(graph, "fuse");
  EXPECT_EQ(count(graph, Op::Relu), 0);
  EXPECT_EQ(count(graph, Op::BatchNormInfer, true), 7);
}

TEST(FuseNorms, ReadAsText) {
  const Graph graph = fuse_norms(parse_graph(R"(%0 = input "x" : f32[2,4]
%1 = param "gamma" {init="ones"} : f32[4]
%2 = param "beta" {init="zeros"} : f32[4]
%3 = state "mean" {category="weights", init="zeros"} : f32[4]
%4 = state "var" {category="weights", init="ones"} : f32[4]
%5, %6, %7, %8, %9 = batch_norm(%0, %1, %2, %3, %4) {eps=0.001, momentum=0.1} : f32[2,4], f32[4], f32[4], f32[4], f32[4]
%10 = add(%0, %5) : f32[2,4]
%11 = relu(%10) : f32[2,4]
output "y" %11
)"));
  verify(graph, "fuse");
  EXPECT_NE(print(graph).find(
                "%5, %6, %7, %8, %9 = batch_norm(%0, %1, %2, %3, %4, %0) {eps=0.001, momentum=0.1, relu=1}"),
            std::string::npos)
      << print(graph);
}

TEST(FuseNorms, LeaveWhatIsNeededInBetween) {
  const auto text = [](std::string_view rest) {
    return std::string(R"(%0 = input "x" : f32[2,4]
%1 = param "gamma" {init="ones"} : f32[4]
%2 = param "beta" {init="zeros"} : f32[4]
%3 = state "mean" {category="weights", init="zeros"} : f32[4]
%4 = state "var" {category="weights", init="ones"} : f32[4]
%5, %6, %7, %8, %9 = batch_norm(%0, %1, %2, %3, %4) {eps=0.001, momentum=0.1} : f32[2,4], f32[4], f32[4], f32[4], f32[4]
)") + std::string(rest);
  };
  for (const std::string_view rest : {
           "%10 = relu(%5) : f32[2,4]\noutput \"y\" %10\noutput \"norm\" %5\n",
           "%10 = add(%5, %5) : f32[2,4]\n%11 = relu(%10) : f32[2,4]\noutput \"y\" %11\n",
           "%10 = add(%5, %0) : f32[2,4]\n%11 = relu(%10) : f32[2,4]\noutput \"y\" %11\noutput \"sum\" %10\n",
           "%10 = relu(%5) : f32[2,4]\n%11 = gelu(%5) : f32[2,4]\noutput \"y\" %10\noutput \"z\" %11\n",
       }) {
    const Graph graph = parse_graph(text(rest));
    EXPECT_EQ(print(fuse_norms(graph)), print(graph)) << rest;
  }
}

}  // namespace
}  // namespace tandem
