#include "tandem/ir/op_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <type_traits>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/ir/infer.h"
#include "tandem/ir/text.h"
#include "tandem/ir/verify.h"

namespace tandem {
namespace {

std::vector<Op> all_ops() {
  std::vector<Op> ops;
  for (int i = 0; i < kNumOps; ++i) ops.push_back(static_cast<Op>(i));
  return ops;
}

// An entry that leaves a part out does not compile, as no part can be made from nothing.
template <typename... Parts>
constexpr bool kNoneHasADefault = (!std::is_default_constructible_v<Parts> && ...);
static_assert(
    kNoneHasADefault<decltype(OpInfo::op), decltype(OpInfo::name), decltype(OpInfo::meaning),
                     decltype(OpInfo::kind), decltype(OpInfo::inputs), decltype(OpInfo::outputs),
                     decltype(OpInfo::attrs), decltype(OpInfo::infer), decltype(OpInfo::cost),
                     decltype(OpInfo::remake), decltype(OpInfo::split), decltype(OpInfo::gradient)>);

TEST(OpTable, HasAnEntryForEveryOp) {
  for (Op op : all_ops()) EXPECT_TRUE(has_entry(op)) << "op " << static_cast<int>(op);
}

TEST(OpTable, HasNoEmptyPart) {
  std::set<std::string_view> names;
  for (Op op : all_ops()) {
    const OpInfo& info = op_info(op);
    EXPECT_FALSE(info.name.get().empty()) << "op " << static_cast<int>(op);
    EXPECT_TRUE(names.insert(info.name).second) << info.name.get() << " is the name of two";
    EXPECT_EQ(parse_op(info.name), op);
    EXPECT_FALSE(info.meaning.get().empty()) << info.name.get();
    EXPECT_FALSE((*info.outputs).empty()) << info.name.get();
    EXPECT_NE(info.infer.get(), nullptr) << info.name.get();
    for (const CountRule rule : {info.cost.flops.get(), info.cost.bytes.get(), info.cost.sent.get()})
      EXPECT_NE(rule, nullptr) << info.name.get();
  }
}

TEST(OpTable, NamesEachInputAndAttributeOnce) {
  for (Op op : all_ops()) {
    std::set<std::string_view> inputs, attrs;
    for (const InputInfo& input : *op_info(op).inputs)
      EXPECT_TRUE(inputs.insert(input.name).second) << op_name(op) << " " << input.name;
    for (const AttrInfo& attr : *op_info(op).attrs)
      EXPECT_TRUE(attrs.insert(attr.name).second) << op_name(op) << " " << attr.name;
    // What an attribute calls for, it must be able to call for.
    for (const InputInfo& input : *op_info(op).inputs)
      EXPECT_TRUE(input.attr.empty() || attrs.contains(input.attr)) << op_name(op) << " " << input.name;
    for (const OutputInfo& output : *op_info(op).outputs)
      EXPECT_TRUE(output.attr.empty() || attrs.contains(output.attr)) << op_name(op) << " " << output.name;
  }
}

// The tensor axis is cut before there are gradients: whatever it can split must be trained through, or be
// what backward begins with.
TEST(OpTable, WhatIsSplitHasAGradient) {
  for (Op op : all_ops()) {
    const OpInfo& info = op_info(op);
    // A mean is measured, and nothing flows back from it.
    const bool begins = info.kind == OpKind::Leaf || info.split == Split::Loss || info.split == Split::Mean;
    if (info.split == Split::Never || begins) continue;
    EXPECT_NE(info.gradient.get(), nullptr) << info.name.get();
  }
}

TEST(OpTable, OnlyCollectivesSend) {
  const Node node{Op::Add, {}, {}, {{DType::F32, Shape({4})}}, kNoBlock, Phase::Forward, ""};
  for (Op op : all_ops()) {
    const OpInfo& info = op_info(op);
    if (info.kind != OpKind::Collective) {
      EXPECT_EQ(info.cost.sent.get()(node, node.outputs), 0) << info.name.get();
    }
  }
}

std::string refusal(std::string_view line) {
  return message_of<ConfigError>([&] {
    parse_graph("%0 = input \"x\" : f32[3,4]\n%1 = param \"w\" {init=\"ones\"} : f32[5,4]\n" +
                std::string(line));
  });
}

TEST(OpTable, RefusesAWrongNumberOfInputs) {
  EXPECT_NE(refusal("%2 = matmul(%0) {trans_a=0, trans_b=1}\n")
                .find("matmul: expected inputs (a, b [, bias]), found 1 of them"),
            std::string::npos);
  EXPECT_NE(refusal("%2 = gelu(%0, %0)\n").find("gelu: expected inputs (x), found 2 of them"),
            std::string::npos);
  EXPECT_NE(
      refusal("%2 = rms_norm_grad(%0, %0, %0, %0, %0) {eps=1e-5, sums=1}\n")
          .find("expected inputs (dy, x, gamma, rstd, acc_dgamma [, dres] [, acc_bias with {sums: 1}]), "
                "found 5 of them"),
      std::string::npos);
  EXPECT_NE(
      refusal("%2 = sgd(%0, %0, %1, %1, %1, %1) {decay=\"1\", masters=0}\n")
          .find(
              "sgd: expected inputs (hyper, norm, (w, g, moment1 [, scale1 with {scaled: 1}] [, master with "
              "{masters: 1}])...), found 6"),
      std::string::npos);
}

TEST(OpTable, RefusesWrongAttributes) {
  EXPECT_NE(refusal("%2 = matmul(%0, %1) {trans_b=1}\n")
                .find("matmul: expected the attribute trans_a (an integer), found none"),
            std::string::npos);
  EXPECT_NE(refusal("%2 = matmul(%0, %1) {trans_a=0, trans_b=\"yes\"}\n")
                .find("matmul: attribute trans_b: expected an integer, found text"),
            std::string::npos);
  EXPECT_NE(refusal("%2 = scale(%0) {factor=2.0, times=3}\n")
                .find("scale: expected attributes factor, found times"),
            std::string::npos);
  EXPECT_NE(refusal("%2 = add(%0, %0) {times=3}\n").find("add: expected attributes none, found times"),
            std::string::npos);
}

TEST(OpTable, TakesAWholeNumberForAReal) {
  const Graph graph = parse_graph("%0 = input \"x\" : f32[3,4]\n%1 = scale(%0) {factor=2}\n");
  EXPECT_EQ(graph.num_nodes(), 2);
}

TEST(Verify, ChecksAttributesOfLeavesAndInputsOfNodes) {
  Graph graph = parse_graph("%0 = input \"x\" : f32[3,4]\n%1 = gelu(%0)\n");
  verify(graph, "test");
  graph.node(1).inputs.push_back({0, 0});
  EXPECT_NE(message_of<BugError>([&] {
              verify(graph, "fuse");
            }).find("after fuse: %1 gelu: expected inputs (x), found 2 of them"),
            std::string::npos);
  graph.node(1).inputs.pop_back();
  graph.node(0).attrs.set("sharded", int64_t{1});
  EXPECT_NE(message_of<BugError>([&] {
              verify(graph, "data");
            }).find("after data: %0 input: expected attributes none, found sharded"),
            std::string::npos);
}

Node node_of(Op op, int num_inputs, Attrs attrs) {
  return {
      op, std::vector<Value>(static_cast<size_t>(num_inputs)), std::move(attrs), {}, kNoBlock, Phase::Forward,
      ""};
}

// The input whose bytes each of the first outputs has.
std::vector<int> aliases(Op op, int num_inputs, const Attrs& attrs, int num_outputs) {
  std::vector<int> result;
  for (int i = 0; i < num_outputs; ++i) result.push_back(aliased_input(node_of(op, num_inputs, attrs), i));
  return result;
}

TEST(AliasedInput, FollowsWhatIsThere) {
  const Attrs eps{{"eps", 1e-5}};
  Attrs both = eps, sums = eps;
  both.set("again", int64_t{1});
  both.set("sums", int64_t{1});
  sums.set("sums", int64_t{1});
  EXPECT_EQ(aliases(Op::LayerNormGrad, 7, eps, 3), (std::vector<int>{-1, 5, 6}));
  EXPECT_EQ(aliases(Op::LayerNormGrad, 8, sums, 4), (std::vector<int>{-1, 5, 6, 7}));
  EXPECT_EQ(aliases(Op::LayerNormGrad, 9, sums, 4), (std::vector<int>{-1, 5, 6, 8}));
  EXPECT_EQ(aliases(Op::LayerNormGrad, 10, both, 5), (std::vector<int>{-1, 5, 6, -1, 9}));
  EXPECT_EQ(aliases(Op::RmsNormGrad, 7, both, 4), (std::vector<int>{-1, 4, -1, 6}));
  EXPECT_EQ(aliases(Op::Zeros, 0, {}, 1), (std::vector<int>{-1}));
  EXPECT_EQ(aliases(Op::Zeros, 1, {}, 1), (std::vector<int>{0}));
  EXPECT_EQ(aliases(Op::AllGather, 1, {}, 1), (std::vector<int>{-1}));
  EXPECT_EQ(aliases(Op::AllGather, 2, {}, 1), (std::vector<int>{1}));
  EXPECT_EQ(aliases(Op::Join, 4, {}, 1), (std::vector<int>{0}));
}

TEST(AliasedInput, KnowsWhichTensorsAreQuantized) {
  const auto attrs = [](int64_t rows, int64_t columns) {
    return Attrs{{"rows", rows}, {"columns", columns}};
  };
  EXPECT_EQ(aliases(Op::Fp8Quantize, 3, attrs(1, 0), 2), (std::vector<int>{-1, 2}));
  EXPECT_EQ(aliases(Op::Fp8Quantize, 3, attrs(0, 1), 2), (std::vector<int>{-1, 2}));
  EXPECT_EQ(aliases(Op::Fp8Quantize, 3, attrs(1, 1), 3), (std::vector<int>{-1, -1, 2}));
  EXPECT_EQ(aliases(Op::Fp8Quantize, 2, attrs(1, 1), 2), (std::vector<int>{-1, -1}));
  EXPECT_EQ(aliases(Op::Fp8SwigluGrad, 4, attrs(1, 1), 3), (std::vector<int>{-1, -1, 3}));
}

TEST(AliasedInput, GoesThroughTheGroupsOfAnOptimizer) {
  EXPECT_EQ(aliases(Op::AdamW, 10, {{"masters", int64_t{0}}}, 8), (std::vector<int>{2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(aliases(Op::AdamW, 12, {{"masters", int64_t{1}}}, 10),
            (std::vector<int>{2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(aliases(Op::Sgd, 10, {{"masters", int64_t{1}}}, 8), (std::vector<int>{2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(ReusableInput, IsTheOneThatTheEntryNames) {
  const Attrs again{{"again", int64_t{1}}};
  EXPECT_EQ(reusable_input(node_of(Op::SwigluGrad, 2, again), 0), 1);
  EXPECT_EQ(reusable_input(node_of(Op::SwigluGrad, 2, again), 1), 0);
  EXPECT_EQ(reusable_input(node_of(Op::Add, 2, {}), 0), 0);
  EXPECT_EQ(reusable_input(node_of(Op::Cast, 1, {}), 0), -1);
  EXPECT_EQ(reusable_input(node_of(Op::LayerNormGrad, 7, {}), 1), -1);
}

}  // namespace
}  // namespace tandem
