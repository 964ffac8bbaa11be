// FLOPs and bytes against numbers worked out by hand: MFU and every figure of a plan rest on them.
#include "tandem/compile/cost.h"

#include <gtest/gtest.h>

#include "tandem/compile/passes/differentiate.h"
#include "tandem/ir/infer.h"
#include "tandem/ir/text.h"
#include "tandem/models/model.h"

namespace tandem {
namespace {

// Of the last node.
Cost cost_of(const std::string& text) {
  const Graph graph = parse_graph(text);
  const Node& node = graph.nodes().back();
  return node_cost(node, input_types(graph, node));
}

TEST(Cost, OfALinearIsTwiceRowsTimesWeights) {
  const Cost cost = cost_of(R"(%0 = input "x" : bf16[2,3,5]
%1 = param "w" {init="ones"} : bf16[7,5]
%2 = param "b" {init="ones"} : bf16[7]
%3 = matmul(%0, %1, %2) {trans_a=0, trans_b=1}
)");
  EXPECT_EQ(cost.flops, 2 * 6 * 5 * 7);
  EXPECT_EQ(cost.bytes, 2 * (6 * 5 + 7 * 5 + 7 + 6 * 7));
  EXPECT_EQ(cost.sent, 0);
}

TEST(Cost, OfAWeightGradientIsThatOfItsLinear) {
  const std::string leaves = R"(%0 = state "acc" {category="gradients"} : f32[7,5]
%1 = input "dy" : bf16[2,3,7]
%2 = input "x" : bf16[2,3,5]
)";
  const Cost cost = cost_of(leaves + "%3 = matmul_acc(%0, %1, %2) {trans_a=1, trans_b=0}\n");
  EXPECT_EQ(cost.flops, 2 * 6 * 5 * 7);
  EXPECT_EQ(cost.bytes, 2 * 4 * 7 * 5 + 2 * (6 * 7 + 6 * 5));
  EXPECT_EQ(cost_of(leaves + R"(%3 = state "b" {category="gradients"} : f32[7]
%4, %5 = matmul_bias_acc(%0, %3, %1, %2) {trans_a=1, trans_b=0}
)")
                .flops,
            2 * 6 * 5 * 7);
}

TEST(Cost, OfProductsOf8BitsIsThatOfOthers) {
  const std::string leaves = R"(%0 = input "a" : f8e4m3[6,5]
%1 = input "b" : f8e4m3[7,5]
%2 = input "scale" : f32[1,4]
)";
  const Cost cost =
      cost_of(leaves + "%3 = fp8_matmul(%0, %1, %2, %2) {dtype=\"bf16\", slot_a=0, slot_b=0}\n");
  EXPECT_EQ(cost.flops, 2 * 6 * 5 * 7);
  EXPECT_EQ(cost.bytes, 6 * 5 + 7 * 5 + 2 * 16 + 2 * 6 * 7);
  EXPECT_EQ(cost_of(leaves + R"(%3 = state "acc" {category="gradients"} : f32[6,7]
%4 = fp8_matmul_acc(%3, %0, %1, %2, %2) {slot_a=0, slot_b=0}
)")
                .flops,
            2 * 6 * 5 * 7);
}

// Batch 2, 8 positions, 4 query and 2 key heads of 3: the scores are 2 * 4 * 8 * 8 numbers of 3 products
// each.
TEST(Cost, OfAttentionIsTwoProductsOfTheScoresAndFiveInBackward) {
  const int64_t product = 2 * (2 * 4 * 8 * 8) * 3;
  const std::string qkv = "%0 = input \"qkv\" : f32[2,8,24]\n";
  EXPECT_EQ(cost_of(qkv + "%1, %2 = attention(%0) {causal=0, heads=4, kv_heads=2}\n").flops, 2 * product);
  EXPECT_EQ(cost_of(qkv + "%1, %2 = attention(%0) {causal=1, heads=4, kv_heads=2}\n").flops, product);
  const std::string leaves = qkv + R"(%1 = input "dout" : f32[2,8,12]
%2 = input "out" : f32[2,8,12]
%3 = input "lse" : f32[2,4,8]
)";
  EXPECT_EQ(cost_of(leaves + "%4 = attention_grad(%1, %0, %2, %3) {causal=0, heads=4, kv_heads=2}\n").flops,
            5 * product);
  EXPECT_EQ(cost_of(leaves + "%4 = attention_grad(%1, %0, %2, %3) {causal=1, heads=4, kv_heads=2}\n").flops,
            5 * product / 2);
  // With a window of 3 the first two queries see 1 and 2 keys, the other six 3 each.
  EXPECT_EQ(cost_of(qkv + "%1, %2 = attention(%0) {causal=1, heads=4, kv_heads=2, window=3}\n").flops,
            2 * product * (1 + 2 + 6 * 3) / (8 * 8));
  EXPECT_EQ(
      cost_of(leaves + "%4 = attention_grad(%1, %0, %2, %3) {causal=1, heads=4, kv_heads=2, window=8}\n")
          .flops,
      5 * product / 2);
}

// A 3x3 window that moves by two over 8x8 images of 4 channels gives 4x4 images; here of 5 channels.
TEST(Cost, OfAConvolutionCountsEachTapOfEachOutput) {
  const int64_t flops = 2 * (2 * 4 * 4 * 5) * (3 * 3 * 4);
  const std::string leaves = R"(%0 = input "x" : f32[2,8,8,4]
%1 = param "w" {init="ones"} : f32[5,3,3,4]
%2 = input "dy" : f32[2,4,4,5]
%3 = state "acc" {category="gradients"} : f32[5,3,3,4]
)";
  EXPECT_EQ(cost_of(leaves + "%4 = conv2d(%0, %1) {pad=1, stride=2}\n").flops, flops);
  EXPECT_EQ(cost_of(leaves + "%4 = conv2d_grad_input(%2, %1) {height=8, pad=1, stride=2, width=8}\n").flops,
            flops);
  EXPECT_EQ(cost_of(leaves + "%4 = conv2d_grad_weight(%3, %0, %2) {pad=1, stride=2}\n").flops, flops);
}

TEST(Cost, OfTheFusedLossIsThatOfItsProducts) {
  const std::string leaves = R"(%0 = input "x" : f32[6,5]
%1 = param "w" {init="ones"} : f32[11,5]
%2 = input "targets" : i32[6]
%3 = input "scale" : f32[1]
%4 = state "acc" {category="gradients"} : f32[11,5]
)";
  EXPECT_EQ(cost_of(leaves + "%5 = linear_cross_entropy(%0, %1, %2) {chunk=2}\n").flops, 2 * 6 * 5 * 11);
  EXPECT_EQ(cost_of(leaves + "%5, %6, %7 = linear_cross_entropy_grad(%0, %1, %2, %3, %4) {chunk=2}\n").flops,
            3 * 2 * 6 * 5 * 11);
}

TEST(Cost, OfWhatTouchesEachElementOnceIsItsBytes) {
  const std::string x = "%0 = input \"x\" : bf16[6,8]\n";
  const Cost gelu = cost_of(x + "%1 = gelu(%0)\n");
  EXPECT_EQ(gelu.flops, 0);
  EXPECT_EQ(gelu.bytes, 2 * (6 * 8) * 2);
  const Cost norm = cost_of(x + R"(%1 = param "g" {init="ones"} : bf16[8]
%2, %3 = rms_norm(%0, %1) {eps=1e-5}
)");
  EXPECT_EQ(norm.flops, 0);
  EXPECT_EQ(norm.bytes, 2 * (6 * 8 + 8 + 6 * 8) + 4 * 6);
  const Cost view = cost_of(x + "%1 = reshape(%0) {shape=\"48\"}\n");
  EXPECT_EQ(view.bytes, 0);
}

TEST(Cost, OfAnEmbeddingCountsTheRowsThatAreRead) {
  const Cost cost = cost_of(R"(%0 = input "ids" : i32[2,3]
%1 = param "t" {init="ones"} : f32[1000,8]
%2 = embedding(%0, %1)
)");
  EXPECT_EQ(cost.bytes, 4 * 6 + 2 * (4 * 6 * 8));
}

TEST(Cost, OfACollectiveIsWhatThisRankSends) {
  const std::string x = "%0 = input \"x\" : f32[8,3]\n";
  EXPECT_EQ(cost_of(x + "%1 = all_gather(%0) {axis=\"data\", size=4}\n").sent, 3 * 96);
  EXPECT_EQ(cost_of(x + "%1 = reduce_scatter(%0) {accumulate=0, axis=\"data\", size=4}\n").sent, 3 * 24);
  EXPECT_EQ(cost_of(x + "%1 = all_reduce(%0) {axis=\"data\", size=4}\n").sent, 2 * 3 * 24);
  EXPECT_EQ(cost_of(x + "%1 = all_reduce(%0) {axis=\"data\", size=5}\n").sent, 2 * 4 * 20)
      << "24 / 5, padded";
  EXPECT_EQ(cost_of(x + "%1 = send(%0) {axis=\"pipeline\", peer=1}\n").sent, 96);
  EXPECT_EQ(cost_of("%0 = recv() {axis=\"pipeline\", dtype=\"f32\", peer=1, shape=\"2\"}\n").sent, 0);
}

// --- whole models ---

int64_t training_flops(const Graph& forward) {
  const Graph graph = differentiate(forward);
  int64_t flops = 0;
  for (const Node& node : graph.nodes()) flops += node_cost(node, input_types(graph, node)).flops;
  return flops;
}

// Narayanan et al. 2021: 24 B T L d^2 (1 + T / (6 d) + V / (12 L d)) forward; causal attention, the second
// term, counts half of that here.
TEST(ForwardModelFlops, OfGpt2IsTheFormulaOfItsPapers) {
  ModelConfig config;
  config.family = Family::Gpt2;
  config.layers = 12;
  config.width = 768;
  config.heads = 12;
  config.context = 1024;
  config.vocab = 50304;
  config.tied = true;
  const int64_t B = 4, T = 1024, L = 12, d = 768, V = 50304;
  const int64_t forward = 24 * B * T * L * d * d + 2 * B * T * L * T * d + 2 * B * T * V * d;
  EXPECT_EQ(forward_model_flops(build_model(config, B)), forward);
  // A token costs 6 FLOPs a weight in training, embeddings apart, and 6 T d a layer for causal attention.
  const int64_t weights = 12 * L * d * d + V * d;
  EXPECT_EQ(3 * forward, B * T * (6 * weights + 6 * L * T * d));
}

TEST(ForwardModelFlops, OfLlamaCountsGroupedHeadsAndThreeMatrices) {
  ModelConfig config;
  config.family = Family::Llama;
  config.layers = 16;
  config.width = 2048;
  config.heads = 32;
  config.kv_heads = 8;
  config.ffn = 8192;
  config.context = 2048;
  config.vocab = 128256;
  config.tied = true;
  const int64_t d = 2048, kv = d / 4, ffn = 8192, tokens = 2 * 2048;
  const int64_t block = d * (d + 2 * kv) + d * d + 3 * d * ffn;
  EXPECT_EQ(16 * block + 128256 * d, 1235746816) << "the parameters of Llama 3.2 1B, norms apart";
  EXPECT_EQ(forward_model_flops(build_model(config, 2)),
            2 * tokens * (16 * block + 128256 * d) + 16 * 2 * tokens * 2048 * d);
}

// Every product has two gradients of its own size. Attention's backward has five products, one more than
// twice its forward's two: the scores again, which model FLOPs do not count.
TEST(ForwardModelFlops, AreAThirdOfTrainingButForAttentionsScores) {
  ModelConfig config;
  config.family = Family::Gpt2;
  config.layers = 2;
  config.width = 64;
  config.heads = 4;
  config.context = 32;
  config.vocab = 256;
  const Graph forward = build_model(config, 3);
  const int64_t scores_again = 2 * (3 * 4 * 32 * 32) * 16 / 2 * 2;  // one causal product for each of 2 layers
  EXPECT_EQ(training_flops(forward), 3 * forward_model_flops(forward) + scores_again);
}

TEST(ForwardModelFlops, OfAnMlpAreItsMatrices) {
  ModelConfig config;
  config.family = Family::Mlp;
  config.layers = 3;
  config.width = 72;
  config.image_size = 16;
  config.channels = 3;
  config.classes = 10;
  const Graph forward = build_model(config, 5);
  int64_t weights = 0;
  for (const Node& node : forward.nodes()) {
    const Shape& shape = node.outputs[0].shape;
    if (node.op == Op::Param && shape.rank() == 2) weights += shape.elems();
  }
  EXPECT_GT(weights, 16 * 16 * 3 * 72);
  EXPECT_EQ(forward_model_flops(forward), 2 * 5 * weights);
}

// The first convolution has no gradient of its input: images are no parameters.
TEST(ForwardModelFlops, OfAResnetAreAThirdOfTrainingButForTheImages) {
  ModelConfig config;
  config.family = Family::Resnet;
  config.blocks = {1, 1};
  config.width = 8;
  config.image_size = 16;
  config.channels = 3;
  config.classes = 10;
  config.norm = ImageNorm::Batch;
  const Graph forward = build_model(config, 2);
  int64_t first = 0;
  for (const Node& node : forward.nodes()) {
    if (first == 0 && node.op == Op::Conv2d) first = node_cost(node, input_types(forward, node)).flops;
  }
  EXPECT_GT(first, 0);
  EXPECT_EQ(training_flops(forward), 3 * forward_model_flops(forward) - first);
}

}  // namespace
}  // namespace tandem
