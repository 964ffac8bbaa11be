#include "tandem/ir/text.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/ir/builder.h"
#include "tandem/ir/verify.h"

namespace tandem {
namespace {

Graph small_model() {
  Builder b = Builder::for_tokens(2, 4);
  Value x = b.embedding(11, 8, true);
  {
    const auto block = b.block(0);
    x = b.add(x, b.attention(b.linear(b.layer_norm(x, "norm1"), 24, "qkv"), 2, 2));
  }
  b.cross_entropy(b.matmul(x, b.param_named("embed.weight"), true));
  return b.take();
}

TEST(GraphText, PrintsANodeWithItsAttributesBlockAndTypes) {
  const std::string text = print(small_model());
  EXPECT_NE(text.find("%7, %8, %9 = layer_norm(%4, %5, %6) {eps=1e-05} block 0 : f32[2,4,8], f32[8], f32[8]"),
            std::string::npos)
      << text;
  EXPECT_NE(
      text.find("param \"blocks.0.qkv.weight\" {dims=\"out,in\", init=\"normal:0.02\"} block 0 : f32[24,8]"),
      std::string::npos)
      << text;
}

TEST(GraphText, ParsesBackToTheSameText) {
  const std::string text = print(small_model());
  const Graph parsed = parse_graph(text);
  verify(parsed, "parse");
  EXPECT_EQ(print(parsed), text);
}

TEST(GraphText, InfersTypesThatAreLeftOut) {
  const Graph graph = parse_graph(
      "%0 = input \"x\" : f32[3,4]\n"
      "%1 = param \"w\" {init=\"ones\"} : f32[5,4]\n"
      "%2 = matmul(%0, %1) {trans_a=0, trans_b=1}\n");
  EXPECT_EQ(graph.type({2, 0}).shape, Shape({3, 5}));
}

TEST(GraphText, NamesTheLineOfAnError) {
  try {
    parse_graph("%0 = input \"x\" : f32[3,4]\n%1 = gelu(%9)\n");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()), "graph text, line 2: unknown value at ')'");
  }
}

TEST(Infer, RefusesInputsThatDoNotFitStartingWithTheOp) {
  try {
    parse_graph(
        "%0 = input \"x\" : f32[3,4]\n%1 = param \"w\" {init=\"ones\"} : f32[5,6]\n"
        "%2 = matmul(%0, %1) {trans_a=0, trans_b=1}\n");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()), "matmul: inner sizes differ: 4 of [3,4] and 6 of [5,6]");
  }
}

TEST(Verify, FindsAReadOfBytesThatWereOverwritten) {
  const Graph graph = parse_graph(
      "%0 = input \"qkv\" : f32[1,2,12]\n"
      "%1 = rope(%0) {heads=1, kv_heads=1, theta=10000.0}\n"
      "%2 = gelu(%0)\n");
  EXPECT_THROW(verify(graph, "test"), BugError);
}

TEST(Verify, FindsTypesThatDoNotFollowFromTheInputs) {
  const Graph graph = parse_graph("%0 = input \"x\" : f32[2,3]\n%1 = gelu(%0) : f32[2,4]\n");
  EXPECT_THROW(verify(graph, "test"), BugError);
}

}  // namespace
}  // namespace tandem
