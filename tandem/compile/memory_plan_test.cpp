#include "tandem/compile/memory_plan.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/compile/passes/data_axis.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/fuse.h"
#include "tandem/compile/passes/overwrite_gradients.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/compile/passes/schedule.h"
#include "tandem/compile/rewrite.h"
#include "tandem/compile/update_graph.h"
#include "tandem/config/config.h"
#include "tandem/ir/builder.h"
#include "tandem/ir/text.h"
#include "tandem/models/model.h"

namespace tandem {
namespace {

MemoryPlan plan_of(const Graph& graph) {
  PersistentLayout layout;
  layout.add(graph);
  return plan_memory(graph, layout);
}

int64_t activations(const MemoryPlan& plan) { return plan.sizes[static_cast<size_t>(Arena::Activations)]; }

ModelConfig gpt2_config(int64_t layers) {
  ModelConfig config;
  config.layers = layers;
  config.width = 64;
  config.heads = 2;
  config.context = 64;
  config.vocab = 64;
  return config;
}

Graph gpt2(int64_t layers, const Recompute& choice) {
  return schedule(fuse(recompute(differentiate(build_model(gpt2_config(layers), 4)), choice)));
}

TEST(MemoryPlan, ReusesMemoryOfDeadValues) {
  const MemoryPlan plan =
      plan_of(parse_graph("%0 = input \"a\" : f32[16]\n%1 = swiglu(%0)\n%2 = concat(%1, %1)\n%3 = "
                          "swiglu(%2)\noutput \"y\" %3\n"));
  EXPECT_EQ(activations(plan), 128) << "never more than two buffers of a cache line are alive";
  EXPECT_EQ(activations(plan), plan.lower_bound);
}

TEST(MemoryPlan, APointwiseOpTakesOverADyingInput) {
  const MemoryPlan plan =
      plan_of(parse_graph("%0 = input \"a\" : f32[64]\n%1 = gelu(%0)\n%2 = gelu(%1)\noutput \"y\" %2\n"));
  EXPECT_EQ(activations(plan), 256);
  EXPECT_EQ(plan.slices.at({0, 0}).offset, plan.slices.at({2, 0}).offset);
}

TEST(MemoryPlan, APointwiseOpDoesNotOverwriteAnInputThatIsReadLater) {
  const MemoryPlan plan =
      plan_of(parse_graph("%0 = input \"a\" : f32[64]\n%1 = gelu(%0)\n%2 = add(%1, %0)\noutput \"y\" %2\n"));
  EXPECT_NE(plan.slices.at({0, 0}).offset, plan.slices.at({1, 0}).offset);
}

// Two values that are alive at the same node never share a byte, unless one is the other in place.
void expect_no_overlap(const Graph& graph) {
  const MemoryPlan plan = plan_of(graph);
  std::map<Value, int32_t> last;
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    for (Value input : graph.node(id).inputs) last[input] = id;
  }
  for (const GraphOutput& output : graph.outputs()) last[output.value] = graph.num_nodes();
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    std::vector<Value> read_later;
    for (const auto& [value, until] : last) {
      if (value.node < id && until > id && plan.slices.at(value).arena == Arena::Activations)
        read_later.push_back(value);
    }
    const Node& node = graph.node(id);
    for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
      const Slice& out = plan.slices.at({id, i});
      if (out.arena != Arena::Activations || node.op == Op::Reshape) continue;
      for (Value value : read_later) {
        const Slice& other = plan.slices.at(value);
        const bool apart =
            other.offset + other.type.bytes() <= out.offset || out.offset + out.type.bytes() <= other.offset;
        ASSERT_TRUE(apart) << "node " << id << " (" << op_name(node.op) << ") overwrites a value of node "
                           << value.node;
      }
    }
    EXPECT_LE(plan.live_bytes[static_cast<size_t>(id)], activations(plan));
  }
}

TEST(MemoryPlan, KeepsApartWhatLivesTogetherInRealModels) {
  for (RecomputeKind kind : {RecomputeKind::None, RecomputeKind::Full, RecomputeKind::Selective}) {
    expect_no_overlap(gpt2(3, {kind, 0}));
  }
  ModelConfig resnet;
  resnet.family = Family::Resnet;
  resnet.width = 8;
  resnet.image_size = 8;
  expect_no_overlap(schedule(fuse(differentiate(build_model(resnet, 2)))));
}

// A tied table, and gradients that the pass overwrites.
Graph with_fresh_gradients() {
  Graph graph = differentiate(build_model(gpt2_config(6), 4));
  graph = overwrite_gradients(graph);
  EXPECT_TRUE(overwrites_gradients(graph));
  return graph;
}

TEST(MemoryPlan, TransientGradientsLieWhereDeadActivationsLay) {
  const Graph graph = schedule(with_fresh_gradients());
  PersistentLayout layout;
  layout.add(graph);
  EXPECT_EQ(layout.sizes()[static_cast<size_t>(Arena::Gradients)], 0);
  const MemoryPlan plan = plan_memory(graph, layout);
  int64_t gradients = 0;
  for (const Persistent& item : layout.items()) {
    if (!item.name.starts_with("grad:")) continue;
    EXPECT_EQ(item.slice.arena, Arena::Activations) << item.name;
    EXPECT_GE(item.slice.offset, 0) << item.name;
    EXPECT_LE(item.slice.offset + item.slice.type.bytes(), activations(plan)) << item.name;
    gradients += item.slice.type.bytes();
  }
  const int64_t without = activations(plan_of(schedule(differentiate(build_model(gpt2_config(6), 4)))));
  EXPECT_LT(activations(plan) - without, gradients / 10) << gradients << " bytes of gradients";
}

TEST(MemoryPlan, NothingOverwritesATransientGradientBeforeTheUpdateHasReadIt) {
  const Graph differentiated = with_fresh_gradients();
  UpdateOptions options;
  for (const Node& node : differentiated.nodes()) {
    if (node.op == Op::Param) options.slots.push_back(node.name);
  }
  options.keep_gradients = true;
  options.together = true;
  const std::vector<Graph> graphs = {differentiated};
  const UnitLayout units(graphs, {}, nullptr, {.each_apart = true});
  const Graph update = build_update(units, {.sharding = {}, .overwrites = true}, options);
  const Graph pass = schedule(shard_data(differentiated, units, {.sharding = {}, .overwrites = true}));
  PersistentLayout layout;
  layout.add(pass);
  layout.add(update);
  const MemoryPlan first = plan_memory(pass, layout), second = plan_memory(update, layout);

  const auto overlap = [](const Slice& a, const Slice& b) {
    return a.arena == b.arena && a.offset < b.offset + b.type.bytes() && b.offset < a.offset + a.type.bytes();
  };
  int checked = 0;
  for (int32_t leaf = 0; leaf < pass.num_nodes(); ++leaf) {
    if (!is_transient(pass.node(leaf))) continue;
    ++checked;
    const std::string& name = pass.node(leaf).name;
    const Slice& slice = first.slices.at({leaf, 0});
    EXPECT_EQ(second.slices.at(update.find(name)).offset, slice.offset) << name;
    bool written = false;  // from its first op on, only its own ops write there
    for (int32_t id = 0; id < pass.num_nodes(); ++id) {
      const Node& node = pass.node(id);
      for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
        const int shared = aliased_input(node, i);
        const bool own = shared >= 0 && first.slices.at({id, i}).offset == slice.offset;
        if (written && !is_leaf(node.op) && !own) {
          EXPECT_FALSE(overlap(first.slices.at({id, i}), slice)) << name << ", " << op_name(node.op);
        }
        written = written || (own && node.inputs[static_cast<size_t>(shared)] == Value{leaf, 0});
      }
    }
    EXPECT_TRUE(written) << name;
    for (const auto& [value, other] : second.slices) {
      const bool own = storage_of(update, value) == update.find(name);
      EXPECT_TRUE(own || !overlap(other, slice)) << name << ", update";
    }
  }
  EXPECT_EQ(checked, static_cast<int>(options.slots.size()));
}

TEST(MemoryPlan, RefusesATransientLeafThatIsReadBeforeItIsWritten) {
  const Graph graph =
      parse_graph(R"(%0 = state "g" {category="gradients", init="zeros", transient=1} : f32[16]
%1 = gelu(%0) : f32[16]
output "y" %1
)");
  EXPECT_THROW(plan_of(graph), BugError);
}

TEST(MemoryPlan, FullRecomputeNeedsAtMostAThirdForTwelveBlocks) {
  const int64_t none = activations(plan_of(gpt2(12, {RecomputeKind::None, 0})));
  const int64_t full = activations(plan_of(gpt2(12, {RecomputeKind::Full, 0})));
  EXPECT_LE(3 * full, none) << full << " of " << none;
}

TEST(MemoryPlan, IsCloseToTheMostThatIsEverAlive) {
  const MemoryPlan plan = plan_of(gpt2(12, {RecomputeKind::None, 0}));
  EXPECT_LE(static_cast<double>(activations(plan)), 1.02 * static_cast<double>(plan.lower_bound));
}

}  // namespace
}  // namespace tandem
