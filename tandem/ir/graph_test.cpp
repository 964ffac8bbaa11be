#include "tandem/ir/graph.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tandem
