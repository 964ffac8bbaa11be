#include "tandem/compile/passes/cache.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/ir/text.h"
#include "tandem/ir/verify.h"

namespace tandem {
namespace {

// One block that has all that the pass changes: 8 positions, a window of 3, 2 heads of 4 on 1 key head.
constexpr std::string_view kModel = R"(%0 = input "tokens" : i32[1,8]
%1 = param "embed" {init="ones"} : bf16[16,8]
%2 = param "pos" {init="ones"} : bf16[8,8]
%3 = embedding(%0, %1, %2) : bf16[1,8,8]
%4 = param "qkv" {init="ones"} : bf16[16,8]
%5 = matmul(%3, %4) {trans_a=0, trans_b=1} : bf16[1,8,16]
%6 = rope(%5) {heads=2, kv_heads=1, theta=100} : bf16[1,8,16]
%7, %8 = attention(%6) {causal=1, heads=2, kv_heads=1, softcap=2.5, window=3} : bf16[1,8,8], f32[1,2,8]
%9 = add(%3, %7) : bf16[1,8,8]
%10 = matmul(%9, %1) {trans_a=0, trans_b=1} : bf16[1,8,16]
%11 = scale(%10) {factor=0.5} : bf16[1,8,16]
output "logits" %11
)";

TEST(Cache, OfOneTokenKeepsKeysAndValuesAndGivesWideLogits) {
  const Graph graph = with_cache(parse_graph(kModel), {.rows = 1, .most_rows = 2});
  verify(graph, "cache");
  EXPECT_EQ(print(graph), R"(%0 = input "tokens" : i32[1,1]
%1 = input "position" : i32[2]
%2 = param "embed" {init="ones"} : bf16[16,8]
%3 = param "pos" {init="ones"} : bf16[8,8]
%4 = embedding(%0, %2, %3, %1) {at=1} : bf16[1,1,8]
%5 = param "qkv" {init="ones"} : bf16[16,8]
%6 = matmul(%4, %5) {few=1, trans_a=0, trans_b=1} : bf16[1,1,16]
%7 = rope(%6, %1) {at=1, context=8, heads=2, kv_heads=1, theta=100} : bf16[1,1,16]
%8 = state "cache:0.keys" {category="cache", init="zeros"} : bf16[1,1,4,4]
%9 = state "cache:0.values" {category="cache", init="zeros"} : bf16[1,1,4,4]
%10, %11, %12 = cached_attention(%7, %8, %9, %1) {heads=2, kv_heads=1, softcap=2.5, window=3} : bf16[1,1,8], bf16[1,1,4,4], bf16[1,1,4,4]
%13 = add(%4, %10) : bf16[1,1,8]
%14 = matmul(%13, %2) {few=1, trans_a=0, trans_b=1, wide=1} : f32[1,1,16]
%15 = scale(%14) {factor=0.5} : f32[1,1,16]
output "logits" %15
)");
}

TEST(Cache, OfManyTokensMakesNothingElse) {
  const Graph graph = with_cache(parse_graph(kModel), {.rows = 6, .most_rows = 6, .logits = false});
  verify(graph, "cache");
  EXPECT_TRUE(graph.outputs().empty());
  EXPECT_EQ(graph.nodes().back().op, Op::CachedAttention);  // what comes after it only the logits needed
  const Value keys = graph.find("cache:0.keys");
  EXPECT_EQ(graph.type(keys).shape, Shape({1, 1, 8, 4}))
      << "the window and 6 rows, but no more than the context";
  for (const Node& node : graph.nodes()) EXPECT_FALSE(node.attrs.has("few"));
}

TEST(Cache, HasRoomForThePositionsThatAreAskedFor) {
  const Graph graph = with_cache(parse_graph(kModel), {.rows = 1, .most_rows = 2, .positions = 3});
  EXPECT_EQ(graph.type(graph.find("cache:0.keys")).shape, Shape({1, 1, 3, 4}));
}

std::string refusal(std::string_view op) {
  const std::string text = fmt::format(R"(%0 = input "tokens" : i32[1,8]
%1 = param "embed" {{init="ones"}} : f32[16,8]
%2 = embedding(%0, %1) : f32[1,8,8]
%3 = {}
output "logits" %3
)",
                                       op);
  return message_of<ConfigError>([&] { with_cache(parse_graph(text), {}); });
}

TEST(Cache, RefusesWhatLooksAtOtherTokens) {
  EXPECT_NE(
      refusal("matmul(%2, %2) {trans_a=0, trans_b=1} : f32[1,8,8]").find("multiplies tokens with each other"),
      std::string::npos);
  EXPECT_NE(refusal("reshape(%2) {shape=\"2,32\"} : f32[2,32]").find("does not keep tokens apart"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem
