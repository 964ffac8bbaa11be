// Passes are tested with graph text in and graph text out.
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/compile/commands_test.h"
#include "tandem/compile/compile_step.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/fuse.h"
#include "tandem/compile/passes/inference.h"
#include "tandem/compile/passes/precision.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/compile/passes/schedule.h"
#include "tandem/compile/update_graph.h"
#include "tandem/ir/builder.h"
#include "tandem/ir/text.h"
#include "tandem/ir/verify.h"
#include "tandem/models/model.h"

namespace tandem {
namespace {

constexpr std::string_view kLinearModel = R"(%0 = input "x" : f32[6,4]
%1 = input "targets" : i32[6]
%2 = param "w" {init="normal:0.02"} : f32[3,4]
%3 = param "b" {init="zeros"} : f32[3]
%4 = matmul(%0, %2, %3) {trans_a=0, trans_b=1} : f32[6,3]
%5 = cross_entropy(%4, %1) : f64[2]
output "logits" %4
output "stats" %5
)";

int count(const Graph& graph, Op op, Phase phase) {
  int n = 0;
  for (const Node& node : graph.nodes()) n += node.op == op && node.phase == phase ? 1 : 0;
  return n;
}

// Two blocks of a residual MLP with norms: enough for every fusion and every kind of recomputation.
Graph residual_model(int64_t vocab = 16) {
  Builder b = Builder::for_tokens(2, 8);
  Value x = b.embedding(vocab, 8, false);
  for (int32_t i = 0; i < 2; ++i) {
    const auto block = b.block(i);
    x = b.add(x, b.linear(b.layer_norm(x, "norm1"), 8, "mix"));
    x = b.add(x, b.linear(b.gelu(b.linear(b.layer_norm(x, "norm2"), 32, "up")), 8, "down"));
  }
  b.cross_entropy(b.linear(b.layer_norm(x, "norm"), vocab, "head", {.bias = false}));
  return b.take();
}

TEST(Differentiate, AppendsTheBackwardOfALinearModel) {
  const Graph graph = differentiate(parse_graph(kLinearModel));
  verify(graph, "differentiate");
  EXPECT_EQ(print(graph), R"(%0 = input "x" : f32[6,4]
%1 = input "targets" : i32[6]
%2 = param "w" {init="normal:0.02"} : f32[3,4]
%3 = param "b" {init="zeros"} : f32[3]
%4 = matmul(%0, %2, %3) {trans_a=0, trans_b=1} : f32[6,3]
%5 = input "scale" backward : f32[1]
%6, %7 = cross_entropy_grad(%4, %1, %5) backward : f32[6,3], f64[2]
%8 = state "grad:b" {category="gradients", init="zeros"} backward : f32[3]
%9 = bias_grad(%8, %6) backward : f32[3]
%10 = state "grad:w" {category="gradients", init="zeros"} backward : f32[3,4]
%11 = matmul_acc(%10, %6, %0) {trans_a=1, trans_b=0} backward : f32[3,4]
output "stats" %7
)");
}

TEST(Differentiate, GivesAPointwiseOpsAttributesToItsGradient) {
  const Graph graph = differentiate(parse_graph(R"(%0 = input "x" : f32[6,4]
%1 = input "targets" : i32[6]
%2 = param "w" {init="normal:0.02"} : f32[3,4]
%3 = matmul(%0, %2) {trans_a=0, trans_b=1} : f32[6,3]
%4 = softcap(%3) {cap=30.0} : f32[6,3]
%5 = cross_entropy(%4, %1) : f64[2]
)"));
  const std::string text = print(graph);
  EXPECT_NE(text.find("%8 = softcap_grad(%6, %3) {cap=30.0} backward : f32[6,3]\n"), std::string::npos)
      << text;
}

TEST(Recompute, MakesAPointwiseOpAgainWhereItIsCheap) {
  Builder b = Builder::for_tokens(2, 8);
  Value x = b.embedding(16, 8, false);
  {
    const auto block = b.block(0);
    x = b.add(x, b.linear(b.softcap(b.linear(x, 32, "up"), 5.0), 8, "down"));
  }
  b.cross_entropy(b.linear(x, 16, "head", {.bias = false}));
  const Graph graph = recompute(differentiate(b.take()), {RecomputeKind::Selective, 0});
  verify(graph, "recompute");
  EXPECT_EQ(count(graph, Op::Softcap, Phase::Forward), 1);
  EXPECT_EQ(count(graph, Op::Softcap, Phase::Recompute), 1);
}

TEST(Differentiate, AddsBothContributionsOfATiedWeightToOneBuffer) {
  Builder b = Builder::for_tokens(2, 4);
  const Value x = b.embedding(8, 4, false);
  b.cross_entropy(b.matmul(x, b.param_named("embed.weight"), true));
  const Graph graph = differentiate(b.take());
  verify(graph, "differentiate");
  const std::string text = print(graph);
  EXPECT_NE(text.find("%9 = matmul_acc(%8, %6, %3)"), std::string::npos) << text;
  EXPECT_NE(text.find("embedding_grad(%9, %0, %10)"), std::string::npos) << text;
}

TEST(Differentiate, RefusesAParameterThatItCouldNotTrain) {
  Builder b = Builder::for_tokens(2, 4);
  const Value x = b.embedding(8, 4, false);
  b.cross_entropy(b.linear(b.add(x, b.param("shift", Shape({2, 4, 4}), "zeros")), 8, "head"));
  const Graph forward = b.take();
  try {
    differentiate(forward);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("parameter 'shift'")) << error.what();
  }
}

TEST(Differentiate, CopiesLogitsThatTheirOwnGradientReads) {
  Builder b = Builder::for_tokens(2, 4);
  b.cross_entropy(b.relu(b.linear(b.embedding(8, 4, false), 8, "head")));
  verify(differentiate(b.take()), "differentiate");
}

TEST(Fuse, KeepsASumThatSomebodyNeedsBeforeTheNorm) {
  const Graph graph = parse_graph(
      "%0 = input \"a\" : f32[4,8]\n%1 = param \"g\" {init=\"ones\"} : f32[8]\n%2 = add(%0, %0)\n%3 = "
      "gelu(%2)\n"
      "%4, %5 = rms_norm(%2, %1) {eps=1e-05}\n%6 = add(%3, %4)\noutput \"y\" %6\n");
  EXPECT_EQ(count(fuse(graph), Op::AddRmsNorm, Phase::Forward), 0);
}

TEST(Fuse, LeavesAGeluAloneWhosePreActivationNobodyElseReads) {
  const Graph graph = fuse(inference(residual_model(), /*keep_logits=*/false));
  EXPECT_EQ(count(graph, Op::MatmulGelu, Phase::Forward), 0);
  EXPECT_EQ(count(graph, Op::Gelu, Phase::Forward), 2);
}

// A projection whose logits are scaled and capped, with its gradients.
Graph capped_model() {
  Builder b = Builder::for_tokens(2, 64);
  const Value logits = b.linear(b.embedding(32, 8, false), 32, "head", {.bias = false});
  b.cross_entropy(b.softcap(b.scale(logits, 0.5), 3.0));
  return differentiate(b.take());
}

TEST(Fuse, TakesScaleAndCapOfLargeLogitsIntoTheChunkedLoss) {
  const Graph graph = fuse(capped_model(), {.chunk_logits_above = 0});
  verify(graph, "fuse");
  for (Op op : {Op::Scale, Op::Softcap, Op::SoftcapGrad, Op::CrossEntropyGrad})
    EXPECT_EQ(count(graph, op, Phase::Forward) + count(graph, op, Phase::Backward), 0) << op_name(op);
  const auto fused = std::find_if(graph.nodes().begin(), graph.nodes().end(),
                                  [](const Node& node) { return node.op == Op::LinearCrossEntropyGrad; });
  ASSERT_NE(fused, graph.nodes().end());
  EXPECT_EQ(fused->attrs.real("scale"), 0.5);
  EXPECT_EQ(fused->attrs.real("softcap"), 3.0);
}

TEST(Fuse, LeavesScaleAndCapWhereTheChunkedLossCannotDoThem) {
  const Graph graph = fuse(capped_model(), {.chunk_logits_above = 0, .logit_steps = false});
  verify(graph, "fuse");
  EXPECT_EQ(count(graph, Op::LinearCrossEntropyGrad, Phase::Backward), 0);
  EXPECT_EQ(count(graph, Op::SoftcapGrad, Phase::Backward), 1);
}

TEST(Precision, StoresWeightsAndActivationsLowAndKeepsStatisticsWide) {
  const Graph graph = apply_precision(residual_model(), {.storage = DType::BF16});
  verify(graph, "precision");
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::LayerNorm) {
      EXPECT_EQ(node.outputs[0].dtype, DType::BF16);
      EXPECT_EQ(node.outputs[1].dtype, DType::F32);
    }
    if (node.op == Op::Param || node.op == Op::Matmul) {
      EXPECT_EQ(node.outputs[0].dtype, DType::BF16);
    }
    if (node.op == Op::CrossEntropy) {
      EXPECT_EQ(node.outputs[0].dtype, DType::F64);
    }
  }
}

TEST(Precision, CastsImageInputs) {
  const Graph graph = apply_precision(parse_graph(kLinearModel), {.storage = DType::F16});
  verify(graph, "precision");
  EXPECT_NE(print(graph).find("%1 = cast(%0) {dtype=\"f16\"} : f16[6,4]"), std::string::npos) << print(graph);
}

TEST(Recompute, FullMakesEachBlockAgainButForItsOutput) {
  const Graph graph = recompute(differentiate(residual_model()), {RecomputeKind::Full, 0});
  verify(graph, "recompute");
  EXPECT_EQ(count(graph, Op::Gelu, Phase::Recompute), 2);
  EXPECT_EQ(count(graph, Op::LayerNorm, Phase::Recompute), 4);
  EXPECT_EQ(count(graph, Op::Add, Phase::Recompute), 2) << "the first sum of each block, not its output";
  EXPECT_EQ(count(graph, Op::Matmul, Phase::Recompute), 4)
      << "mix and up, not down: nobody reads its output again";
}

TEST(Recompute, EveryTwoLeavesOddBlocksAlone) {
  const Graph graph = recompute(differentiate(residual_model()), {RecomputeKind::Every, 2});
  verify(graph, "recompute");
  for (const Node& node : graph.nodes()) {
    if (node.phase == Phase::Recompute) {
      EXPECT_EQ(node.block, 0);
    }
  }
  EXPECT_EQ(count(graph, Op::Gelu, Phase::Recompute), 1);
}

TEST(Recompute, SelectiveMakesOnlyCheapOpsAgain) {
  const Graph graph = recompute(differentiate(residual_model()), {RecomputeKind::Selective, 0});
  verify(graph, "recompute");
  EXPECT_EQ(count(graph, Op::Matmul, Phase::Recompute), 0);
  EXPECT_EQ(count(graph, Op::Gelu, Phase::Recompute), 2);
  EXPECT_EQ(count(graph, Op::LayerNorm, Phase::Recompute), 4);
}

TEST(Recompute, NeverRunsBatchNormTwice) {
  Builder b = Builder::for_images(2, 8, 3);
  Value x = b.images();
  {
    const auto block = b.block(0);
    x = b.relu(b.batch_norm(b.conv2d(x, 4, 3, 1, "conv1"), "norm1"));
    x = b.relu(b.batch_norm(b.conv2d(x, 4, 3, 1, "conv2"), "norm2"));
  }
  b.cross_entropy(b.linear(b.global_avg_pool(x), 5, "head"));
  const Graph graph = recompute(differentiate(b.take()), {RecomputeKind::Full, 0});
  verify(graph, "recompute");
  EXPECT_EQ(count(graph, Op::BatchNorm, Phase::Recompute), 0);
  EXPECT_GT(count(graph, Op::Conv2d, Phase::Recompute), 0);
}

TEST(Recompute, CandidatesRunFromNoneToFull) {
  const auto names = [](int64_t context) {
    ModelConfig config;
    config.layers = 3;
    config.context = context;
    std::vector<std::string> list;
    for (const Recompute& choice : recompute_candidates(build_model(config, 1)))
      list.push_back(recompute_name(choice));
    return list;
  };
  EXPECT_EQ(names(256), (std::vector<std::string>{"none", "selective", "every:3", "every:2",
                                                  "all_but_attention", "full"}));
  EXPECT_EQ(names(16384), (std::vector<std::string>{"none", "selective", "all_but_attention", "full"}))
      << "attention is four fifths of the work";
}

TEST(Recompute, AllButAttentionKeepsWhatAttentionGave) {
  const Graph graph = differentiate(build_model({}, 1));
  const Graph again = recompute(graph, {RecomputeKind::AllButAttention, 0});
  verify(again, "recompute");
  EXPECT_EQ(count(again, Op::Attention, Phase::Recompute), 0);
  const Graph full = recompute(graph, {RecomputeKind::Full, 0});
  EXPECT_GT(count(full, Op::Attention, Phase::Recompute), 0);
  EXPECT_EQ(count(again, Op::LayerNorm, Phase::Recompute), count(full, Op::LayerNorm, Phase::Recompute));
}

TEST(Fuse, JoinsWhatAFusedKernelExistsFor) {
  const Graph graph = fuse(differentiate(residual_model()));
  verify(graph, "fuse");
  EXPECT_EQ(count(graph, Op::MatmulGelu, Phase::Forward), 2);
  EXPECT_EQ(count(graph, Op::Gelu, Phase::Forward), 0);
  EXPECT_EQ(count(graph, Op::AddLayerNorm, Phase::Forward), 4) << "the norm after each of four sums";
  EXPECT_EQ(count(graph, Op::Add, Phase::Forward), 0);
  EXPECT_EQ(count(graph, Op::Add, Phase::Backward), 0) << "residual gradients join the norm gradients";
}

TEST(Fuse, ChunksALargeVocabularyProjection) {
  const Graph graph =
      fuse(differentiate(residual_model(64)), {.chunk_logits_above = 1024, .chunk_bytes = 1024});
  verify(graph, "fuse");
  EXPECT_EQ(count(graph, Op::LinearCrossEntropyGrad, Phase::Backward), 1);
  EXPECT_EQ(count(graph, Op::CrossEntropyGrad, Phase::Backward), 0);
}

TEST(Fuse, ChunksAProjectionOfRaggedRowsWhateverItsSize) {
  const auto projections = [](int64_t vocab, bool chunk_ragged) {
    const Graph graph = fuse(differentiate(residual_model(vocab)), {.chunk_ragged_logits = chunk_ragged});
    return count(graph, Op::LinearCrossEntropyGrad, Phase::Backward);
  };
  EXPECT_EQ(projections(63, true), 1);
  EXPECT_EQ(projections(63, false), 0);
  EXPECT_EQ(projections(64, true), 0);
}

TEST(Fuse, LeavesRecomputedPartsCorrect) {
  for (RecomputeKind kind : {RecomputeKind::Full, RecomputeKind::Selective}) {
    const Graph graph = schedule(fuse(recompute(differentiate(residual_model()), {kind, 0})));
    verify(graph, "schedule");
  }
}

TEST(Schedule, PutsLeavesFirst) {
  const Graph graph = schedule(differentiate(residual_model()));
  verify(graph, "schedule");
  bool leaves_over = false;
  for (const Node& node : graph.nodes()) {
    leaves_over = leaves_over || !is_leaf(node.op);
    EXPECT_FALSE(leaves_over && is_leaf(node.op));
  }
}

TEST(Inference, ReadsRunningStatisticsAndDropsTheLossWhereLogitsAreWanted) {
  Builder b = Builder::for_images(2, 8, 3);
  b.cross_entropy(b.linear(b.global_avg_pool(b.batch_norm(b.images(), "norm")), 5, "head"));
  const Graph graph = inference(b.take(), /*keep_logits=*/true);
  verify(graph, "inference");
  EXPECT_EQ(count(graph, Op::BatchNorm, Phase::Forward), 0);
  EXPECT_EQ(count(graph, Op::BatchNormInfer, Phase::Forward), 1);
  EXPECT_EQ(count(graph, Op::CrossEntropy, Phase::Forward), 0);
  EXPECT_FALSE(graph.find("targets").valid());
}

TEST(UpdateGraph, DecaysMatricesOnlyAndKeepsMastersForHalfPrecision) {
  for (const DType storage : {DType::BF16, DType::F16}) {
    const std::vector<Graph> model = {apply_precision(parse_graph(kLinearModel), {.storage = storage})};
    UpdateOptions options;
    options.precision.storage = storage;
    options.slots = {"w", "b"};
    options.together = true;
    const Graph update = build_update(UnitLayout(model, {}, nullptr, {.each_apart = true}), {}, options);
    verify(update, "update");
    const Node& adamw = update.nodes().back();
    EXPECT_EQ(adamw.op, Op::AdamW);
    EXPECT_EQ(adamw.attrs.text("decay"), "1,0");
    EXPECT_EQ(adamw.inputs.size(), 2 + 2 * 5);
    // A bf16 weight is the upper half of its master.
    const Value master = update.find("master:w");
    ASSERT_TRUE(master.valid());
    EXPECT_EQ(update.type(master).dtype, storage == DType::BF16 ? DType::I16 : DType::F32);
  }
}

TEST(CompileStep, CanBeBrokenOffAtAnyPass) {
  struct Stop {};
  int calls = 0;
  CompileOptions options;
  options.choose = choose_by_name;
  options.while_compiling = [&] { ++calls; };
  compile_step(residual_model(), options);
  const int all = calls;
  EXPECT_GE(all, 10) << "once a pass, and before each memory plan";
  options.while_compiling = [&] {
    if (--calls == 0) throw Stop();
  };
  for (int at = 1; at <= all; ++at) {
    calls = at;
    EXPECT_THROW(compile_step(residual_model(), options), Stop);
  }
}

}  // namespace
}  // namespace tandem
