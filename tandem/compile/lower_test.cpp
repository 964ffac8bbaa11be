#include "tandem/compile/lower.h"

#include <gtest/gtest.h>

#include "tandem/compile/commands_test.h"
#include "tandem/ir/text.h"

namespace tandem {
namespace {

Executable lower_text(std::string_view text) {
  const Graph graph = parse_graph(text);
  PersistentLayout layout;
  layout.add(graph);
  return lower("test", graph, plan_memory(graph, layout), choose_by_name);
}

TEST(Lower, ComputationWaitsForACollectiveOnlyWhereBytesMeet) {
  const Executable executable = lower_text(R"(%0 = state "shard" {category="weights", init="zeros"} : f32[16]
%1 = input "a" : f32[16]
%2 = all_gather(%0) {axis="data", size=2} : f32[32]
%3 = gelu(%1) : f32[16]
%4 = swiglu(%2) : f32[16]
%5 = add(%3, %4) : f32[16]
output "y" %5
)");
  ASSERT_EQ(4u, executable.commands.size());
  EXPECT_EQ(kDataStream, executable.commands[0].stream);
  EXPECT_EQ(64, executable.commands[0].sent_bytes);
  EXPECT_TRUE(executable.commands[1].waits.empty());  // beside the gather
  EXPECT_EQ(std::vector<int32_t>{0}, executable.commands[2].waits);
  EXPECT_TRUE(executable.commands[3].waits.empty());  // waited for already
}

TEST(Lower, WhatIsBeingSentIsNotOverwritten) {
  const Executable executable = lower_text(R"(%0 = state "g" {category="gradients", init="zeros"} : f32[32]
%1 = state "part" {category="gradients", init="zeros"} : f32[16]
%2 = reduce_scatter(%0, %1) {accumulate=1, axis="data", size=2} : f32[16]
%3 = zeros(%0) {dtype="f32", shape="32"} : f32[32]
)");
  ASSERT_EQ(2u, executable.commands.size());
  EXPECT_EQ(std::vector<int32_t>{0}, executable.commands[1].waits);
}

TEST(Lower, CountsWhatEachCollectiveSends) {
  const Executable executable = lower_text(R"(%0 = state "x" {category="weights", init="zeros"} : f32[30]
%1 = all_reduce(%0) {axis="tensor", size=4} : f32[30]
%2 = send(%1) {axis="pipeline", peer=1} : f32[30]
%3 = recv() {axis="pipeline", dtype="f32", peer=1, shape="30"} : f32[30]
output "y" %3
)");
  EXPECT_EQ(2 * 3 * 8 * 4, sent_bytes(executable, Axis::Tensor));  // parts of 8, the last one padded
  EXPECT_EQ(120, sent_bytes(executable, Axis::Pipeline));
  EXPECT_EQ(0, sent_bytes(executable, Axis::Data));
}

}  // namespace
}  // namespace tandem
