#include "tandem/compile/passes/offload_activations.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tandem/compile/memory_plan.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/compile/passes/schedule.h"
#include "tandem/ir/verify.h"
#include "tandem/models/model.h"

namespace tandem {
namespace {

Graph trained(Family family, int64_t layers, RecomputeKind kind) {
  ModelConfig config;
  config.family = family;
  config.layers = layers;
  config.width = 64;
  config.heads = 2;
  config.context = 64;
  config.vocab = 64;
  return recompute(differentiate(build_model(config, 4)), {kind, 0});
}

std::vector<Node> copies(const Graph& graph, std::string_view to) {
  std::vector<Node> found;
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::Copy && node.attrs.text("to") == to) found.push_back(node);
  }
  return found;
}

int64_t bytes_of(const std::vector<Node>& nodes) {
  return std::accumulate(nodes.begin(), nodes.end(), int64_t{0},
                         [](int64_t sum, const Node& node) { return sum + node.outputs[0].bytes(); });
}

int64_t planned(const Graph& graph, Arena arena) {
  PersistentLayout layout;
  layout.add(graph);
  return plan_memory(graph, layout).sizes[static_cast<size_t>(arena)];
}

// The first node in backward of each block.
int32_t backward_of(const Graph& graph, int32_t block) {
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    if (node.block == block && node.phase == Phase::Backward && !is_leaf(node.op) && node.op != Op::Copy)
      return id;
  }
  return graph.num_nodes();
}

TEST(OffloadActivations, WithAllMadeAgainEachBlockSendsItsInput) {
  for (const Family family : {Family::Gpt2, Family::Llama}) {
    const Graph graph = schedule(offload_activations(trained(family, 6, RecomputeKind::Full)));
    verify(graph, "offload");
    const std::vector<Node> out = copies(graph, "host"), back = copies(graph, "device");
    ASSERT_EQ(out.size(), 5u);  // the last block's stays
    ASSERT_EQ(back.size(), 5u);
    for (const Node& node : out) EXPECT_EQ(node.outputs[0].shape.elems(), 4 * 64 * 64);
  }
}

TEST(OffloadActivations, WhatComesBackIsOneBlockAheadOfItsReader) {
  const Graph graph = schedule(offload_activations(trained(Family::Llama, 6, RecomputeKind::None)));
  verify(graph, "offload");
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    if (node.op != Op::Copy || node.phase == Phase::Forward) continue;
    EXPECT_LT(id, backward_of(graph, node.block + 1));
    if (node.block < 4) {
      EXPECT_GT(id, backward_of(graph, node.block + 2));
    }
  }
}

TEST(OffloadActivations, TheDeviceKeepsAboutTwoBlocksOfThem) {
  for (const RecomputeKind kind : {RecomputeKind::None, RecomputeKind::Full}) {
    const auto device = [&](int64_t layers, bool away) {
      const Graph graph = trained(Family::Llama, layers, kind);
      const Graph made = schedule(away ? offload_activations(graph) : graph);
      return planned(made, Arena::Activations) + planned(made, Arena::Communication);
    };
    const int64_t block = (device(12, false) - device(6, false)) / 6;
    EXPECT_GT(block, 0);
    // What is left of each further block are the small values.
    EXPECT_LT(device(12, true) - device(6, true), block / 20) << block;
    EXPECT_LT(device(12, true), device(12, false) - 7 * block) << block;
  }
}

TEST(OffloadActivations, TheHostHoldsWhatIsSent) {
  const Graph graph = schedule(offload_activations(trained(Family::Gpt2, 5, RecomputeKind::None)));
  EXPECT_EQ(planned(graph, Arena::Host), bytes_of(copies(graph, "host")));
}

TEST(OffloadActivations, TheFirstBlocksGoWhereNotAllHaveRoom) {
  const Graph graph = trained(Family::Llama, 6, RecomputeKind::Full);
  const int64_t all = bytes_of(copies(offload_activations(graph), "host"));
  const std::vector<Node> some = copies(offload_activations(graph, all / 5 * 2), "host");
  EXPECT_EQ(bytes_of(some), all / 5 * 2);
  EXPECT_TRUE(copies(offload_activations(graph, 0), "host").empty());
}

TEST(OffloadActivations, AlsoImagesModelsAreTaken) {
  ModelConfig config;
  config.family = Family::Resnet;
  const Graph graph = schedule(offload_activations(differentiate(build_model(config, 4))));
  verify(graph, "offload");
  EXPECT_FALSE(copies(graph, "host").empty());
  EXPECT_EQ(copies(graph, "host").size(), copies(graph, "device").size());
}

}  // namespace
}  // namespace tandem
