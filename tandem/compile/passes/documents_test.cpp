#include "tandem/compile/passes/documents.h"

#include <gtest/gtest.h>

#include "tandem/ir/builder.h"
#include "tandem/ir/text.h"
#include "tandem/ir/verify.h"

namespace tandem {
namespace {

TEST(SeparateDocuments, BringsSegmentsToAttentionAndPositionsToWhatReadsThem) {
  const Graph graph = separate_documents(parse_graph(R"(%0 = input "tokens" : i32[2,4]
%1 = input "targets" : i32[2,4]
%2 = param "embed" {init="normal:0.02"} : f32[8,12]
%3 = param "pos" {init="normal:0.02"} : f32[4,12]
%4 = embedding(%0, %2, %3) : f32[2,4,12]
%5 = rope(%4) {heads=1, kv_heads=1, theta=100} block 0 : f32[2,4,12]
%6, %7 = attention(%5) {heads=1, kv_heads=1, causal=1, window=3} block 0 : f32[2,4,4], f32[2,1,4]
%8 = param "head" {init="normal:0.02"} : f32[8,4]
%9 = matmul(%6, %8) {trans_a=0, trans_b=1} : f32[2,4,8]
%10 = cross_entropy(%9, %1) : f64[2]
output "logits" %9
output "stats" %10
)"));
  verify(graph, "documents");
  EXPECT_EQ(print(graph), R"(%0 = input "tokens" : i32[2,4]
%1 = input "targets" : i32[2,4]
%2 = param "embed" {init="normal:0.02"} : f32[8,12]
%3 = param "pos" {init="normal:0.02"} : f32[4,12]
%4 = input "positions" : i32[2,4]
%5 = embedding(%0, %2, %3, %4) {positions=1} : f32[2,4,12]
%6 = rope(%5, %4) {heads=1, kv_heads=1, positions=1, theta=100} block 0 : f32[2,4,12]
%7 = input "segments" : i32[2,4]
%8, %9 = attention(%6, %7) {causal=1, heads=1, kv_heads=1, segments=1, window=3} block 0 : f32[2,4,4], f32[2,1,4]
%10 = param "head" {init="normal:0.02"} : f32[8,4]
%11 = matmul(%8, %10) {trans_a=0, trans_b=1} : f32[2,4,8]
%12 = cross_entropy(%11, %1) : f64[2]
output "logits" %11
output "stats" %12
)");
  EXPECT_EQ(print(separate_documents(graph)), print(graph));
}

// A model that asks for segments itself, after a layer that does not.
TEST(SeparateDocuments, SharesTheInputThatAModelHas) {
  Builder b = Builder::for_tokens(1, 4);
  Value x = b.attention(b.embedding(8, 12, /*positions=*/false), 1, 1);
  x = b.attention(b.linear(x, 12, "qkv"), 1, 1, {.segments = b.segments()});
  b.cross_entropy(b.linear(x, 8, "head"));
  const Graph graph = separate_documents(b.take());
  verify(graph, "documents");
  int inputs = 0, readers = 0;
  for (const Node& node : graph.nodes()) {
    inputs += node.op == Op::Input && node.name == "segments" ? 1 : 0;
    readers += node.op == Op::Attention && node.inputs.size() == 2 ? 1 : 0;
  }
  EXPECT_EQ(inputs, 1);
  EXPECT_EQ(readers, 2);
}

}  // namespace
}  // namespace tandem
