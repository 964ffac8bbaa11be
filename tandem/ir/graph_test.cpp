#include "tandem/ir/graph.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>

namespace tandem {
namespace {

Node leaf(Op op, std::string name) {
  return {op, {}, {}, {{DType::F32, Shape({1})}}, kNoBlock, Phase::Forward, std::move(name)};
}

TEST(Graph, FindsLeavesByName) {
  Graph graph;
  const Value input = graph.add(leaf(Op::Input, "x"));
  graph.add({Op::Gelu, {input}, {}, {{DType::F32, Shape({1})}}, kNoBlock, Phase::Forward, ""});
  const Value param = graph.add(leaf(Op::Param, "w"));
  EXPECT_EQ(graph.find("x"), input);
  EXPECT_EQ(graph.find("w"), param);
  EXPECT_FALSE(graph.find("").valid()) << "a node without a name is no leaf";
  const Graph copy = graph;
  EXPECT_EQ(copy.find("w"), param);
}

TEST(Graph, FindsOneOfVeryManyLeavesWithoutALookAtEach) {
  constexpr int32_t kLeaves = 100000;
  Graph graph;
  const std::clock_t start = std::clock();
  for (int32_t i = 0; i < kLeaves; ++i) graph.add(leaf(Op::Param, fmt::format("blocks.{}.attn.weight", i)));
  for (int32_t i = 0; i < kLeaves; ++i)
    ASSERT_EQ(graph.find(fmt::format("blocks.{}.attn.weight", i)), (Value{i, 0}));
  EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace tandem
