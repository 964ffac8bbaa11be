#include "tandem/compile/passes/data_axis.h"

#include <gtest/gtest.h>

#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/fuse.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/compile/passes/schedule.h"
#include "tandem/compile/update_graph.h"
#include "tandem/ir/text.h"
#include "tandem/ir/verify.h"
#include "tandem/models/tiny_gpt2_test.h"

namespace tandem {
namespace {

constexpr std::string_view kLinearModel = R"(%0 = input "x" : f32[6,4]
%1 = input "targets" : i32[6]
%2 = param "w" {init="normal:0.02"} : f32[8,4]
%3 = param "b" {init="zeros"} : f32[8]
%4 = matmul(%0, %2, %3) {trans_a=0, trans_b=1} : f32[6,8]
%5 = cross_entropy(%4, %1) : f64[2]
output "stats" %5
)";

const MeshPosition kSecondOfTwo{{.data = 2}, 1};

Graph shard_linear(const DataAxisOptions& options) {
  const Graph forward = parse_graph(kLinearModel);
  const std::vector<Graph> graphs = {forward};
  const Graph graph = shard_data(differentiate(forward), UnitLayout(graphs, kSecondOfTwo), options);
  verify(graph, "data");
  return graph;
}

TEST(DataAxis, DdpReducesAPassIntoThisRanksPart) {
  EXPECT_EQ(print(shard_linear({.sharding = sharding_of(Strategy::Ddp)})),
            R"(%0 = state "weights:first" {category="weights", init="zeros"} : f32[64]
%1 = view(%0) {begin=0, shape="8,4"} : f32[8,4]
%2 = view(%0) {begin=32, shape="8"} : f32[8]
%3 = input "x" : f32[6,4]
%4 = input "targets" : i32[6]
%5 = matmul(%3, %1, %2) {trans_a=0, trans_b=1} : f32[6,8]
%6 = input "scale" backward : f32[1]
%7, %8 = cross_entropy_grad(%5, %4, %6) backward : f32[6,8], f64[2]
%9 = zeros() {dtype="f32", shape="64"} backward : f32[64]
%10 = view(%9) {begin=32, shape="8"} backward : f32[8]
%11 = bias_grad(%10, %7) backward : f32[8]
%12 = view(%9) {begin=0, shape="8,4"} backward : f32[8,4]
%13 = matmul_acc(%12, %7, %3) {trans_a=1, trans_b=0} backward : f32[8,4]
%14 = join(%9, %13, %11) backward : f32[64]
%15 = state "grads_part:first" {category="gradients", init="zeros"} : f32[32]
%16 = reduce_scatter(%14, %15) {accumulate=0, axis="data", size=2} backward : f32[32]
output "stats" %8
)");
}

TEST(DataAxis, InAFixedOrderEachMicroBatchIsAddedToTheSumInTurn) {
  const DataAxisOptions options{
      .sharding = sharding_of(Strategy::Zero2), .accumulates = true, .fixed_order = true};
  const std::string two = print(shard_linear(options));
  EXPECT_NE(two.find("{accumulate=2, axis=\"data\", size=2} backward : f32[32]"), std::string::npos) << two;

  // One rank makes a micro-batch's gradients apart as well, so that they are the same bits.
  const Graph forward = parse_graph(kLinearModel);
  const std::vector<Graph> graphs = {forward};
  const Graph alone = shard_data(differentiate(forward), UnitLayout(graphs, MeshPosition{}), options);
  verify(alone, "data");
  const std::string one = print(alone);
  for (const char* line :
       {"%9 = zeros() {dtype=\"f32\", shape=\"64\"} backward : f32[64]\n",
        "%14 = join(%9, %13, %11) backward : f32[64]\n", "%16 = add(%15, %14, %15) backward : f32[64]\n"})
    EXPECT_NE(one.find(line), std::string::npos) << line << one;
}

TEST(DataAxis, TheLastPassOfAStepReducesWhatAllHaveAddedUpInPlace) {
  const std::string text =
      print(shard_linear({.sharding = sharding_of(Strategy::Zero1), .accumulates = true, .once = true}));
  for (const char* line :
       {"%9 = state \"grads:first\" {category=\"gradients\", init=\"zeros\"} : f32[64]\n",
        "%14 = join(%9, %13, %11) backward : f32[64]\n",
        "%15 = view(%14) {begin=32, shape=\"32\"} backward : f32[32]\n",
        "%16 = reduce_scatter(%14, %15) {accumulate=0, axis=\"data\", size=2} backward : f32[32]\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(DataAxis, FsdpGathersBeforeUseAndKeepsOnlyAPartOfTheGradient) {
  const Graph graph = shard_linear({.sharding = sharding_of(Strategy::Fsdp), .accumulates = true});
  const std::string text = print(graph);
  EXPECT_NE(text.find("state \"weights:first\" {category=\"weights\", init=\"zeros\"} : f32[32]"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("all_gather(%0) {axis=\"data\", size=2} : f32[64]"), std::string::npos) << text;
  EXPECT_NE(text.find("zeros() {dtype=\"f32\", shape=\"64\"}"), std::string::npos) << text;
  EXPECT_NE(text.find("{accumulate=1, axis=\"data\", size=2} backward : f32[32]"), std::string::npos) << text;
}

Graph gpt2(int64_t layers) { return build_model(tiny_gpt2(layers), 2); }

std::vector<int32_t> nodes_of(const Graph& graph, Op op, Phase phase) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    if (graph.node(id).op == op && graph.node(id).phase == phase) ids.push_back(id);
  }
  return ids;
}

TEST(DataAxis, FsdpGathersBlocksTwiceAndOneUnitAhead) {
  const Graph forward = gpt2(3);
  const std::vector<Graph> graphs = {forward};
  const UnitLayout layout(graphs, kSecondOfTwo);
  for (const Recompute& choice : {Recompute{RecomputeKind::None, 0}, Recompute{RecomputeKind::Full, 0}}) {
    const Graph pass = fuse(recompute(differentiate(forward), choice));
    const Graph graph = schedule(shard_data(pass, layout, {.sharding = sharding_of(Strategy::Fsdp)}));
    verify(graph, "schedule");
    const std::vector<int32_t> ahead = nodes_of(graph, Op::AllGather, Phase::Forward);
    ASSERT_EQ(5u, ahead.size());  // first, three blocks, last
    EXPECT_EQ(3u, nodes_of(graph, Op::AllGather, Phase::Backward).size());
    EXPECT_EQ(5u, nodes_of(graph, Op::ReduceScatter, Phase::Backward).size());
    // Block 1 is gathered before block 0 computes.
    int32_t first_of_block_0 = -1;
    for (int32_t id = 0; id < graph.num_nodes() && first_of_block_0 < 0; ++id) {
      const Node& node = graph.node(id);
      if (node.block == 0 && !is_leaf(node.op) && !is_view(node.op) && !is_collective(node.op))
        first_of_block_0 = id;
    }
    EXPECT_EQ(1, graph.node(ahead[2]).block);
    EXPECT_LT(ahead[2], first_of_block_0);
    EXPECT_GT(ahead[3], first_of_block_0);  // but not block 2
  }
}

TEST(UpdateGraph, ZeroUpdatesItsPartAndGathersTheWeights) {
  const std::vector<Graph> graphs = {gpt2(1)};
  const UnitLayout layout(graphs, kSecondOfTwo);
  UpdateOptions options;
  for (const Node& node : graphs[0].nodes()) {
    if (node.op == Op::Param) options.slots.push_back(node.name);
  }
  for (Strategy strategy : {Strategy::Ddp, Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp}) {
    const Graph update = build_update(layout, {.sharding = sharding_of(strategy)}, options);
    verify(update, "update");
    const size_t gathers = nodes_of(update, Op::AllGather, Phase::Update).size();
    EXPECT_EQ(strategy == Strategy::Fsdp ? 0u : layout.units().size(), gathers);
    int64_t moments = 0;
    for (const Node& node : update.nodes()) {
      if (node.op == Op::State && node.name.starts_with("moment1:")) moments += node.outputs[0].shape.elems();
    }
    int64_t whole = 0;
    for (const Unit& unit : layout.units()) whole += unit.elems;
    EXPECT_EQ(strategy == Strategy::Ddp ? whole : whole / 2, moments);
  }
}

TEST(UpdateGraph, DdpGathersGradientsOneUnitAhead) {
  const std::vector<Graph> graphs = {gpt2(3)};
  const UnitLayout layout(graphs, kSecondOfTwo);
  UpdateOptions options;
  for (const Node& node : graphs[0].nodes()) {
    if (node.op == Op::Param) options.slots.push_back(node.name);
  }
  const Graph update =
      build_update(layout, {.sharding = sharding_of(Strategy::Ddp), .accumulates = true}, options);
  const std::vector<int32_t> gathers = nodes_of(update, Op::AllGather, Phase::Update);
  const std::vector<int32_t> updates = nodes_of(update, Op::AdamW, Phase::Update);
  ASSERT_EQ(gathers.size(), updates.size());
  for (size_t u = 0; u + 2 < gathers.size(); ++u) {
    EXPECT_LT(gathers[u + 1], updates[u]);
    EXPECT_GT(gathers[u + 2], updates[u]);  // two units of gradients stand whole, not all of them
    for (int32_t node = gathers[u + 1]; node < updates[u]; ++node) {
      EXPECT_NE(update.node(node).op, Op::Zeros) << "waits for the gather, and the update for it";
    }
  }
}

}  // namespace
}  // namespace tandem
