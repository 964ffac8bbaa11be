#include "tandem/compile/memory_plan.h"

#include <gtest/gtest.h>

#include "tandem/compile/differentiate.h"
#include "tandem/compile/fuse.h"
#include "tandem/compile/recompute.h"
#include "tandem/compile/schedule.h"
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

Graph gpt2(int64_t layers, const Recompute& choice) {
  ModelConfig config;
  config.layers = layers;
  config.width = 64;
  config.heads = 2;
  config.context = 64;
  config.vocab = 64;
  return schedule(fuse(recompute(differentiate(build_model(config, 4)), choice)));
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
