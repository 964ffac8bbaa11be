// What is left out of a step where parameters are frozen.
#include "tandem/compile/trained.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/compile/commands_test.h"
#include "tandem/compile/compile_step.h"
#include "tandem/compile/cost.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/fuse.h"
#include "tandem/compile/units.h"
#include "tandem/models/tiny_gpt2_test.h"

namespace tandem {
namespace {

Graph frozen(const ModelConfig& config, const std::vector<std::string_view>& prefixes) {
  Graph graph = build_model(config, 2);
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    Node& node = graph.node(id);
    for (std::string_view prefix : prefixes) {
      if (node.op == Op::Param && node.name.starts_with(prefix)) node.attrs.set("frozen", int64_t{1});
    }
  }
  return graph;
}

ModelConfig untied(int64_t layers) {
  ModelConfig config = tiny_gpt2(layers);
  config.tied = false;
  return config;
}

TEST(Frozen, BackwardEndsWhereTheFrozenBlocksBegin) {
  const Graph graph = differentiate(frozen(untied(3), {"embed.", "pos.", "blocks.0.", "blocks.1."}));
  for (const Node& node : graph.nodes()) {
    EXPECT_FALSE(node.op == Op::State && node.name.starts_with("grad:blocks.1.")) << node.name;
    EXPECT_TRUE(node.phase != Phase::Backward || node.block == kNoBlock || node.block == 2) << node.block;
    EXPECT_NE(node.op, Op::EmbeddingGrad);
  }
  EXPECT_TRUE(graph.find("grad:blocks.2.qkv.weight").valid());
  EXPECT_TRUE(graph.find("grad:head.weight").valid());
}

TEST(Frozen, BlocksInTheMiddlePassGradientsOnWithoutAnyOfTheirOwn) {
  const Graph graph = differentiate(frozen(untied(3), {"blocks.1."}));
  EXPECT_FALSE(graph.find("grad:blocks.1.norm1.weight").valid());
  EXPECT_TRUE(graph.find("grad:blocks.0.qkv.weight").valid());
  const auto products = std::count_if(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return node.block == 1 && node.op == Op::MatmulAcc;
  });
  EXPECT_EQ(products, 0);
}

TEST(Frozen, LieInUnitsOfTheirOwn) {
  const std::vector<Graph> graphs = {frozen(tiny_gpt2(2), {"blocks.0.up.", "embed.weight"})};
  const UnitLayout layout(graphs, MeshPosition{{.data = 2}, 0});
  std::map<std::string, bool> units;
  for (const Unit& unit : layout.units()) units[unit.name] = unit.frozen;
  const std::map<std::string, bool> expected = {{"first", false},    {"first.frozen", true},
                                                {"blocks.0", false}, {"blocks.0.frozen", true},
                                                {"blocks.1", false}, {"last", false}};
  EXPECT_EQ(units, expected);
}

TEST(Frozen, AreNotCountedAsWorkThatIsNotDone) {
  const Graph whole = frozen(untied(2), {});
  EXPECT_EQ(training_model_flops(whole), 3 * forward_model_flops(whole));
  const auto flops_of = [&](std::string_view weight) {
    for (const Node& node : whole.nodes()) {
      if (node.op == Op::Matmul && whole.node(node.inputs[1].node).name == weight)
        return 2 * node.outputs[0].shape.elems() * whole.type(node.inputs[0]).shape.last();
    }
    return int64_t{0};
  };
  // Its gradient alone; and, where all that is before it is frozen, that of its input alone.
  EXPECT_EQ(training_model_flops(frozen(untied(2), {"blocks.1.up.weight"})),
            3 * forward_model_flops(whole) - flops_of("blocks.1.up.weight"));
  const Graph first = frozen(untied(2), {"embed.", "pos.", "blocks.0.norm1."});
  EXPECT_EQ(training_model_flops(first), 3 * forward_model_flops(whole) - flops_of("blocks.0.qkv.weight"));
}

TEST(Frozen, AHeadStillHasItsLossInChunks) {
  FuseOptions options;
  options.chunk_logits_above = 0;
  const Graph graph = fuse(differentiate(frozen(untied(1), {"head."})), options);
  const auto& nodes = graph.nodes();
  const auto loss = std::find_if(nodes.begin(), nodes.end(),
                                 [](const Node& node) { return node.op == Op::LinearCrossEntropyGrad; });
  ASSERT_NE(loss, nodes.end());
  EXPECT_EQ(loss->inputs.size(), 4u);
  EXPECT_EQ(loss->outputs.size(), 2u);
}

TEST(Frozen, AreSavedWithoutOptimizerState) {
  CompileOptions options;
  options.choose = choose_by_name;
  options.precision = precision_policy(Precision::Bf16);
  const CompiledStep step = compile_step(frozen(untied(1), {"head."}), options);
  std::vector<std::string> head;
  for (const ModelTensor& tensor : step.tensors) {
    if (tensor.name.ends_with("head.weight")) head.push_back(tensor.name);
  }
  EXPECT_EQ(head, std::vector<std::string>{"head.weight"});
  EXPECT_EQ(step.find("master:head.weight"), nullptr);
  EXPECT_TRUE(step.find("weights:head.weight")->saved);
  EXPECT_TRUE(step.find("weights:head.weight")->packed->rounded);
}

}  // namespace
}  // namespace tandem
