// Groups of parameters (train.groups): frozen ones stay, and factors hold, however ranks share the step.
#include <gtest/gtest.h>

#include <set>

#include "tandem/kernels/cpu/register.h"
#include "tandem/models/family_models_test.h"
#include "tandem/runtime/rank_sessions_test.h"

namespace tandem {
namespace {

using Adjust = std::function<void(CompileOptions&)>;

void freeze(Graph& graph, const std::set<std::string>& names) {
  for (const std::string& name : names) {
    ASSERT_TRUE(graph.find(name).valid()) << name;
    graph.node(graph.find(name).node).attrs.set("frozen", int64_t{1});
  }
}

std::set<std::string> params_of(const Graph& graph, std::string_view prefix) {
  std::set<std::string> names;
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::Param && node.name.starts_with(prefix)) names.insert(node.name);
  }
  return names;
}

// One matrix, half of a norm and a bias of one block, all of another; and factors elsewhere.
Graph grouped(const ModelConfig& config = tiny_gpt2(4)) {
  Graph graph = build_model(config, 2);
  freeze(graph, {"blocks.0.qkv.weight", "blocks.0.norm1.weight", "blocks.0.out.bias"});
  freeze(graph, params_of(graph, "blocks.2."));
  graph.node(graph.find("embed.weight").node).attrs.set("lr", 0.25);
  graph.node(graph.find("blocks.1.up.weight").node).attrs.set("decay", 3.0);
  graph.node(graph.find("blocks.1.up.weight").node).attrs.set("lr", 2.0);
  return graph;
}

RankedRun run(const MeshShape& shape, Strategy strategy, const Graph& graph, const Adjust& adjust = {}) {
  return train_ranks(
      shape, strategy, cpu::all_kernels(),
      [&](CompileOptions& options) {
        if (adjust) adjust(options);
      },
      graph);
}

Weights started(const Graph& graph, Precision precision) {
  const KernelRegistry registry = cpu::all_kernels();
  CompileOptions options;
  options.choose = choose_from(registry, 1);
  options.precision = precision_policy(precision);
  ThreadPool pool(1);
  Session session(compile_step(graph, options), registry, pool);
  session.initialize(5);
  Weights weights;
  collect(session, weights);
  return weights;
}

TEST(Groups, EveryShardingOfTheDataAxisGivesTheSameBits) {
  for (Precision precision : {Precision::Fp32, Precision::Bf16, Precision::Fp16}) {
    for (int passes : {1, 2}) {
      const auto adjust = [&](CompileOptions& options) {
        options.precision = precision_policy(precision);
        options.parallel.micro_batches = passes;
      };
      const Weights ddp = run({.data = 3}, Strategy::Ddp, grouped(), adjust).weights;
      for (Strategy strategy : {Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp})
        EXPECT_EQ(ddp, run({.data = 3}, strategy, grouped(), adjust).weights) << static_cast<int>(strategy);
    }
  }
}

TEST(Groups, FrozenParametersStayAsTheyBeganAndHaveNoState) {
  const Graph graph = grouped();
  for (Precision precision : {Precision::Fp32, Precision::Bf16, Precision::Fp16}) {
    const auto adjust = [&](CompileOptions& options) { options.precision = precision_policy(precision); };
    const Weights before = started(graph, precision);
    const Weights after = run({}, Strategy::Single, graph, adjust).weights;
    for (const Node& node : graph.nodes()) {
      if (node.op != Op::Param) continue;
      const bool frozen = node.attrs.has("frozen");
      EXPECT_EQ(before.at(node.name) == after.at(node.name), frozen) << node.name;
      EXPECT_EQ(after.contains("moment1:" + node.name), !frozen) << node.name;
    }
  }
}

TEST(Groups, RecomputationOffloadingAndAPipelineChangeNoBit) {
  const Graph graph = grouped();
  const auto twice = [](CompileOptions& options) { options.parallel.micro_batches = 2; };
  const Weights one = run({}, Strategy::Single, graph, twice).weights;
  const auto with = [&](const Adjust& more) {
    return [&, more](CompileOptions& options) {
      twice(options);
      more(options);
    };
  };
  for (RecomputeKind kind : {RecomputeKind::Full, RecomputeKind::Selective})
    EXPECT_EQ(one, run({}, Strategy::Single, graph, with([&](CompileOptions& options) {
                         options.recompute = {kind, 0};
                       }))
                       .weights);
  EXPECT_EQ(one, run({}, Strategy::Single, graph, with([](CompileOptions& options) {
                       options.parallel.offload_optimizer = options.parallel.offload_weights = true;
                     }))
                     .weights);
  EXPECT_EQ(one, run({}, Strategy::Single, graph,
                     with([](CompileOptions& options) { options.overwrite_gradients = true; }))
                     .weights);
  for (int stages : {2, 4}) EXPECT_EQ(one, run({.pipeline = stages}, Strategy::Single, graph, twice).weights);
}

// The backward of a pipeline ends with the last stage that has something to train.
TEST(Groups, FirstStagesThatAreFrozenGetNoGradients) {
  Graph graph = build_model(tiny_gpt2(4), 2);
  for (const char* table : {"embed.", "pos."}) freeze(graph, params_of(graph, table));
  for (const char* block : {"blocks.0.", "blocks.1."}) freeze(graph, params_of(graph, block));
  const auto twice = [](CompileOptions& options) { options.parallel.micro_batches = 2; };
  const Weights one = run({}, Strategy::Single, graph, twice).weights;
  const RankedRun staged = run({.pipeline = 2}, Strategy::Single, graph, twice);
  EXPECT_EQ(one, staged.weights);
  for (const Command& command : staged.steps[0].pass.commands)
    EXPECT_EQ(command.phase, Phase::Forward) << command.kernel;
  for (Arena arena : {Arena::Gradients, Arena::Optimizer, Arena::Master})
    EXPECT_EQ(staged.steps[0].sizes[static_cast<size_t>(arena)], 0);
  EXPECT_EQ(one, run({.pipeline = 4}, Strategy::Single, graph, twice).weights);
}

TEST(Groups, TheTensorAxisAndMixesStayCloseToOneRank) {
  const auto expect_near = [](const Weights& got, const Weights& want) {
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, values] : want) {
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(got.at(name)[i], values[i], 2e-5) << name << " " << i;
    }
  };
  const Graph graph = grouped();
  expect_near(run({.tensor = 2}, Strategy::Single, graph).weights, run({}, Strategy::Single, graph).weights);
  const Weights data = run({.data = 2}, Strategy::Ddp, graph).weights;
  expect_near(run({.data = 2, .tensor = 2}, Strategy::Fsdp, graph).weights, data);
  expect_near(run({.data = 2, .tensor = 2, .pipeline = 2}, Strategy::Zero1, graph).weights, data);
}

TEST(Groups, MuonLeavesFrozenMatricesOut) {
  const auto muon = [](CompileOptions& options) { options.optimizer = OptimizerKind::Muon; };
  const Graph graph = grouped();
  const Weights ddp = run({.data = 2}, Strategy::Ddp, graph, muon).weights;
  EXPECT_FALSE(ddp.contains("moment1:blocks.2.up.weight"));
  EXPECT_EQ(ddp, run({.data = 2}, Strategy::Fsdp, graph, muon).weights);
}

TEST(Groups, HalfOfTheMatricesFrozenIsHalfOfTheirMemory) {
  Graph graph = build_model(tiny_gpt2(4), 2);
  const KernelRegistry registry = cpu::all_kernels();
  CompileOptions options;
  options.choose = choose_from(registry, 1);
  options.precision = precision_policy(Precision::Bf16);
  const CompiledStep all = compile_step(graph, options);
  int64_t frozen = 0, halves = 0;
  for (const char* block : {"blocks.0.", "blocks.1."}) {
    freeze(graph, params_of(graph, block));
    for (const std::string& name : params_of(graph, block)) {
      const int64_t elems = graph.type(graph.find(name)).shape.elems();
      frozen += elems;
      halves += (2 * elems + 63) / 64 * 64;  // each begins at a cache line
    }
  }
  const CompiledStep step = compile_step(graph, options);
  const auto fell = [&](Arena arena) {
    return all.sizes[static_cast<size_t>(arena)] - step.sizes[static_cast<size_t>(arena)];
  };
  EXPECT_EQ(fell(Arena::Weights), 0);
  EXPECT_EQ(fell(Arena::Master), halves);
  EXPECT_EQ(fell(Arena::Gradients), 4 * frozen);
  EXPECT_EQ(fell(Arena::Optimizer), 8 * frozen);
}

}  // namespace
}  // namespace tandem
