#include "tandem/compile/passes/unroll.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/compile/memory_plan.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/fuse.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/compile/passes/schedule.h"
#include "tandem/compile/passes/stage.h"
#include "tandem/ir/builder.h"
#include "tandem/ir/text.h"
#include "tandem/ir/verify.h"
#include "tandem/models/model.h"

namespace tandem {
namespace {

const std::vector<PipelineSlot> kTwoInTurn = {{true, 0, 0}, {false, 0, 0}, {true, 0, 1}, {false, 0, 1}};

Graph unroll_text(std::string_view text, const std::vector<PipelineSlot>& order) {
  const Graph chunk = parse_graph(text);
  verify(chunk, "the test's own text");
  Graph graph = unroll({&chunk, 1}, order, 2);
  verify(graph, "unroll");
  return graph;
}

TEST(Unroll, SharesStatesAndGivesEachMicroBatchItsInputs) {
  const Graph graph = unroll_text(R"(%0 = input "x" : f32[2,3]
%1 = param "w" {init="ones"} : f32[4,3]
%2 = state "grad:w" {category="gradients", init="zeros"} backward : f32[4,3]
%3 = input "scale" backward : f32[1]
%4 = matmul(%0, %1) {trans_a=0, trans_b=1} : f32[2,4]
%5 = send(%4) {axis="pipeline", peer=1} : f32[2,4]
%6 = recv() {axis="pipeline", dtype="f32", peer=1, shape="2,4"} backward : f32[2,4]
%7 = matmul_acc(%2, %6, %0) {trans_a=1, trans_b=0} backward : f32[4,3]
output "y" %6
)",
                                  {{true, 0, 0}, {true, 0, 1}, {false, 0, 0}, {false, 0, 1}});
  EXPECT_EQ(print(graph), R"(%0 = input "x.0" : f32[2,3]
%1 = input "x.1" : f32[2,3]
%2 = param "w" {init="ones"} : f32[4,3]
%3 = state "grad:w" {category="gradients", init="zeros"} backward : f32[4,3]
%4 = input "scale" backward : f32[1]
%5 = matmul(%0, %2) {trans_a=0, trans_b=1} : f32[2,4]
%6 = send(%5) {axis="pipeline", peer=1} : f32[2,4]
%7 = matmul(%1, %2) {trans_a=0, trans_b=1} : f32[2,4]
%8 = send(%7) {axis="pipeline", peer=1} : f32[2,4]
%9 = recv() {axis="pipeline", dtype="f32", peer=1, shape="2,4"} backward : f32[2,4]
%10 = matmul_acc(%3, %9, %0) {trans_a=1, trans_b=0} backward : f32[4,3]
%11 = recv() {axis="pipeline", dtype="f32", peer=1, shape="2,4"} backward : f32[2,4]
%12 = matmul_acc(%10, %11, %1) {trans_a=1, trans_b=0} backward : f32[4,3]
output "y.0" %9
output "y.1" %11
)");
}

TEST(Unroll, GoesOnFromTheViewsAndJoinsOfAFlatBuffer) {
  const Graph graph = unroll_text(R"(%0 = state "weights:u" {category="weights", init="zeros"} : f32[8]
%1 = state "grads:u" {category="gradients", init="zeros"} : f32[8]
%2 = state "grads_part:u" {category="gradients", init="zeros"} : f32[4]
%3 = input "x" : f32[2,4]
%4 = view(%0) {begin=0, shape="4"} : f32[4]
%5 = view(%0) {begin=4, shape="4"} : f32[4]
%6, %7, %8 = layer_norm(%3, %4, %5) {eps=1e-05} : f32[2,4], f32[2], f32[2]
%9 = zeros(%1) {dtype="f32", shape="8"} backward : f32[8]
%10 = view(%9) {begin=0, shape="4"} backward : f32[4]
%11 = bias_grad(%10, %6) backward : f32[4]
%12 = view(%9) {begin=4, shape="4"} backward : f32[4]
%13 = bias_grad(%12, %6) backward : f32[4]
%14 = join(%9, %11, %13) backward : f32[8]
%15 = reduce_scatter(%14, %2) {accumulate=1, axis="data", size=2} backward : f32[4]
)",
                                  kTwoInTurn);
  EXPECT_EQ(print(graph), R"(%0 = state "weights:u" {category="weights", init="zeros"} : f32[8]
%1 = state "grads:u" {category="gradients", init="zeros"} : f32[8]
%2 = state "grads_part:u" {category="gradients", init="zeros"} : f32[4]
%3 = input "x.0" : f32[2,4]
%4 = input "x.1" : f32[2,4]
%5 = view(%0) {begin=0, shape="4"} : f32[4]
%6 = view(%0) {begin=4, shape="4"} : f32[4]
%7, %8, %9 = layer_norm(%3, %5, %6) {eps=1e-05} : f32[2,4], f32[2], f32[2]
%10 = zeros(%1) {dtype="f32", shape="8"} backward : f32[8]
%11 = view(%10) {begin=0, shape="4"} backward : f32[4]
%12 = bias_grad(%11, %7) backward : f32[4]
%13 = view(%10) {begin=4, shape="4"} backward : f32[4]
%14 = bias_grad(%13, %7) backward : f32[4]
%15 = join(%10, %12, %14) backward : f32[8]
%16 = reduce_scatter(%15, %2) {accumulate=1, axis="data", size=2} backward : f32[4]
%17, %18, %19 = layer_norm(%4, %5, %6) {eps=1e-05} : f32[2,4], f32[2], f32[2]
%20 = zeros(%15) {dtype="f32", shape="8"} backward : f32[8]
%21 = view(%20) {begin=0, shape="4"} backward : f32[4]
%22 = bias_grad(%21, %17) backward : f32[4]
%23 = view(%20) {begin=4, shape="4"} backward : f32[4]
%24 = bias_grad(%23, %17) backward : f32[4]
%25 = join(%20, %22, %24) backward : f32[8]
%26 = reduce_scatter(%25, %16) {accumulate=1, axis="data", size=2} backward : f32[4]
)");
}

TEST(Unroll, GoesOnFromAViewThatNobodyHasJoined) {
  const Graph graph = unroll_text(R"(%0 = state "grads:u" {category="gradients", init="zeros"} : f32[8]
%1 = input "x" : f32[2,4]
%2 = relu(%1) : f32[2,4]
%3 = view(%0) {begin=4, shape="4"} backward : f32[4]
%4 = bias_grad(%3, %2) backward : f32[4]
)",
                                  kTwoInTurn);
  EXPECT_NE(print(graph).find("%7 = bias_grad(%5, %6)"), std::string::npos) << print(graph);
}

TEST(Unroll, JoinsOfAPersistentBufferFollowEachOther) {
  const Graph graph = unroll_text(R"(%0 = state "grads:u" {category="gradients", init="zeros"} : f32[8]
%1 = input "x" : f32[2,4]
%2 = relu(%1) : f32[2,4]
%3 = view(%0) {begin=4, shape="4"} backward : f32[4]
%4 = bias_grad(%3, %2) backward : f32[4]
%5 = join(%0, %4) backward : f32[8]
)",
                                  kTwoInTurn);
  const std::string text = print(graph);
  EXPECT_NE(text.find("%6 = join(%0, %5)"), std::string::npos) << text;
  EXPECT_NE(text.find("%8 = view(%6) {begin=4"), std::string::npos) << text;
  EXPECT_NE(text.find("%10 = join(%6, %9)"), std::string::npos) << text;
}

TEST(Unroll, ReshapesWhatWasUpdatedInAnotherShape) {
  const Graph graph = unroll_text(R"(%0 = state "g" {category="gradients", init="zeros"} : f32[2,2]
%1 = input "x" : f32[3,4]
%2 = relu(%1) : f32[3,4]
%3 = reshape(%0) {shape="4"} backward : f32[4]
%4 = bias_grad(%3, %2) backward : f32[4]
)",
                                  kTwoInTurn);
  const std::string text = print(graph);
  EXPECT_NE(text.find("reshape(%5) {shape=\"2,2\"}"), std::string::npos) << text;
}

TEST(Unroll, LeavesViewsOfWhatBackwardGathersToBackward) {
  const Graph graph = unroll_text(R"(%0 = state "weights:u" {category="weights", init="zeros"} : f32[4]
%1 = input "x" : f32[2,8]
%2 = relu(%1) : f32[2,8]
%3 = all_gather(%0) {axis="data", size=2} backward : f32[8]
%4 = view(%3) {begin=0, shape="2,4"} : f32[2,4]
%5 = relu(%4) backward : f32[2,4]
)",
                                  {{true, 0, 0}, {true, 0, 1}, {false, 0, 0}, {false, 0, 1}});
  EXPECT_NE(print(graph).find("%4 = relu(%2) : f32[2,8]\n%5 = all_gather(%0)"), std::string::npos)
      << print(graph);
}

// The second forward has added to it by the time the first backward does.
TEST(Unroll, WhatForwardAndBackwardAddToGoesOnFromWhoeverCameLast) {
  const Graph graph = unroll_text(R"(%0 = input "x" : bf16[16,16]
%1 = state "scales" {category="optimizer", init="zeros"} : f32[1,4]
%2 = state "need" {category="gradients", init="zeros"} : f32[1]
%3, %4 = fp8_quantize(%0, %1, %2) {columns=0, dtype="f8e4m3", rows=1, slot=0} : f8e4m3[16,16], f32[1]
%5, %6 = fp8_quantize(%0, %1, %4) {columns=1, dtype="f8e4m3", rows=0, slot=0} recompute : f8e4m3[16,16], f32[1]
)",
                                  {{true, 0, 0}, {true, 0, 1}, {false, 0, 0}, {false, 0, 1}});
  EXPECT_EQ(print(graph), R"(%0 = input "x.0" : bf16[16,16]
%1 = input "x.1" : bf16[16,16]
%2 = state "scales" {category="optimizer", init="zeros"} : f32[1,4]
%3 = state "need" {category="gradients", init="zeros"} : f32[1]
%4, %5 = fp8_quantize(%0, %2, %3) {columns=0, dtype="f8e4m3", rows=1, slot=0} : f8e4m3[16,16], f32[1]
%6, %7 = fp8_quantize(%1, %2, %5) {columns=0, dtype="f8e4m3", rows=1, slot=0} : f8e4m3[16,16], f32[1]
%8, %9 = fp8_quantize(%0, %2, %7) {columns=1, dtype="f8e4m3", rows=0, slot=0} recompute : f8e4m3[16,16], f32[1]
%10, %11 = fp8_quantize(%1, %2, %9) {columns=1, dtype="f8e4m3", rows=0, slot=0} recompute : f8e4m3[16,16], f32[1]
)");
}

TEST(Unroll, RunningStatisticsFollowTheForwards) {
  Builder b = Builder::for_images(2, 4, 3);
  b.cross_entropy(b.linear(b.global_avg_pool(b.batch_norm(b.images(), "norm")), 5, "head"));
  const Graph chunk = schedule(differentiate(b.take()));
  const std::vector<PipelineSlot> order = {{true, 0, 0}, {true, 0, 1}, {false, 0, 0}, {false, 0, 1}};
  const Graph graph = unroll({&chunk, 1}, order, 2);
  verify(graph, "unroll");
  std::vector<int32_t> norms;
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    if (graph.node(id).op == Op::BatchNorm) norms.push_back(id);
  }
  ASSERT_EQ(norms.size(), 2U);
  EXPECT_EQ(graph.node(norms[1]).inputs[3], (Value{norms[0], 3}));
  EXPECT_EQ(graph.node(norms[1]).inputs[4], (Value{norms[0], 4}));
}

TEST(Unroll, ABackwardBeforeItsForwardIsABug) {
  const Graph chunk = schedule(differentiate(parse_graph(R"(%0 = input "x" : f32[2,3]
%1 = input "targets" : i32[2]
%2 = param "w" {init="ones"} : f32[4,3]
%3 = matmul(%0, %2) {trans_a=0, trans_b=1} : f32[2,4]
%4 = cross_entropy(%3, %1) : f64[2]
output "stats" %4
)")));
  const std::vector<PipelineSlot> order = {{false, 0, 0}, {true, 0, 0}};
  EXPECT_THROW(unroll({&chunk, 1}, order, 1), BugError);
}

std::vector<Graph> chunks_of(const ModelConfig& config, int stage, int stages, int chunks_per_stage) {
  std::vector<Graph> chunks;
  for (int i = 0; i < chunks_per_stage; ++i) {
    const MeshPosition at{.shape = {.pipeline = stages}, .pipeline = stage};
    const Graph part = cut_stage(build_model(config, 2), i * stages + stage, stages * chunks_per_stage, at);
    chunks.push_back(schedule(fuse(recompute(differentiate(part), {RecomputeKind::Selective, 0}))));
  }
  return chunks;
}

int64_t activation_bytes(PipelineSchedule schedule, int stage, int stages, int chunks, int micro_batches) {
  ModelConfig config;
  config.layers = 4;
  config.width = 16;
  config.heads = 2;
  config.context = 8;
  config.vocab = 32;
  const std::vector<Graph> parts = chunks_of(config, stage, stages, chunks);
  const Graph graph =
      unroll(parts, pipeline_order(schedule, stage, stages, chunks, micro_batches), micro_batches);
  verify(graph, "unroll");
  PersistentLayout layout;
  layout.add(graph);
  return plan_memory(graph, layout).lower_bound;
}

TEST(Unroll, OneForwardOneBackwardKeepsFewerActivationsThanGpipe) {
  const int64_t gpipe = activation_bytes(PipelineSchedule::GPipe, 1, 2, 1, 6);
  const int64_t one = activation_bytes(PipelineSchedule::OneFOneB, 1, 2, 1, 6);
  EXPECT_LT(one * 3, gpipe) << "one micro-batch in flight instead of six";
  EXPECT_GT(activation_bytes(PipelineSchedule::OneFOneB, 0, 2, 1, 6), one) << "the first rank holds two";
  EXPECT_LT(activation_bytes(PipelineSchedule::Interleaved, 1, 2, 2, 6), gpipe);
}

}  // namespace
}  // namespace tandem
