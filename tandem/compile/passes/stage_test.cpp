#include "tandem/compile/passes/stage.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/inference.h"
#include "tandem/compile/passes/precision.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/ir/builder.h"
#include "tandem/ir/text.h"
#include "tandem/ir/verify.h"

namespace tandem {
namespace {

constexpr std::string_view kTiedModel = R"(%0 = input "tokens" : i32[1,2]
%1 = input "targets" : i32[1,2]
%2 = param "embed" {init="zeros"} : f32[5,4]
%3 = embedding(%0, %2) : f32[1,2,4]
%4 = param "g0" {init="ones"} block 0 : f32[4]
%5, %6 = rms_norm(%3, %4) {eps=1e-05} block 0 : f32[1,2,4], f32[2]
%7 = add(%3, %5) block 0 : f32[1,2,4]
%8 = param "g1" {init="ones"} block 1 : f32[4]
%9, %10 = rms_norm(%7, %8) {eps=1e-05} block 1 : f32[1,2,4], f32[2]
%11 = add(%7, %9) block 1 : f32[1,2,4]
%12 = matmul(%11, %2) {trans_a=0, trans_b=1} : f32[1,2,5]
%13 = cross_entropy(%12, %1) : f64[2]
output "logits" %12
output "stats" %13
)";

MeshPosition on(int pipeline, int stages) { return {.shape = {.pipeline = stages}, .pipeline = pipeline}; }

Graph half(int chunk) { return cut_stage(parse_graph(kTiedModel), chunk, 2, on(chunk, 2)); }

std::string error_of(const Graph& forward, int chunk, int num_chunks, const MeshPosition& at) {
  try {
    cut_stage(forward, chunk, num_chunks, at);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(CutStage, EndsAChunkWithASendAndBeginsTheNextWithARecv) {
  verify(half(0), "stage");
  verify(half(1), "stage");
  EXPECT_EQ(print(half(0)), R"(%0 = input "tokens" : i32[1,2]
%1 = param "embed" {init="zeros", tied="first"} : f32[5,4]
%2 = embedding(%0, %1) : f32[1,2,4]
%3 = param "g0" {init="ones"} block 0 : f32[4]
%4, %5 = rms_norm(%2, %3) {eps=1e-05} block 0 : f32[1,2,4], f32[2]
%6 = add(%2, %4) block 0 : f32[1,2,4]
%7 = send(%6) {axis="pipeline", peer=1} : f32[1,2,4]
)");
  EXPECT_EQ(print(half(1)), R"(%0 = recv() {axis="pipeline", dtype="f32", peer=0, shape="1,2,4"} : f32[1,2,4]
%1 = input "targets" : i32[1,2]
%2 = param "embed" {init="zeros", tied="last"} : f32[5,4]
%3 = param "g1" {init="ones"} block 1 : f32[4]
%4, %5 = rms_norm(%0, %3) {eps=1e-05} block 1 : f32[1,2,4], f32[2]
%6 = add(%0, %4) block 1 : f32[1,2,4]
%7 = matmul(%6, %2) {trans_a=0, trans_b=1} : f32[1,2,5]
%8 = cross_entropy(%7, %1) : f64[2]
output "logits" %7
output "stats" %8
)");
}

TEST(CutStage, GradientsGoBackTheWayActivationsCame) {
  const Graph first = differentiate(half(0)), last = differentiate(half(1));
  verify(first, "differentiate");
  verify(last, "differentiate");
  EXPECT_TRUE(first.outputs().empty());
  EXPECT_FALSE(first.find("scale").valid()) << "the loss is elsewhere";
  EXPECT_NE(
      print(first).find(
          "%7 = send(%6) {axis=\"pipeline\", peer=1} : f32[1,2,4]\n"
          "%8 = recv() {axis=\"pipeline\", dtype=\"f32\", peer=1, shape=\"1,2,4\"} backward : f32[1,2,4]\n"),
      std::string::npos)
      << print(first);
  EXPECT_EQ(last.nodes().back().op, Op::Send);
  EXPECT_EQ(last.nodes().back().attrs.integer("peer"), 0);
  EXPECT_EQ(last.nodes().back().phase, Phase::Backward);
  EXPECT_EQ(last.outputs().size(), 1U);
}

TEST(CutStage, MessagesAreNeverRepeatedByRecomputation) {
  for (int chunk : {0, 1}) {
    Graph trained = differentiate(half(chunk));
    for (int32_t id = 0; id < trained.num_nodes(); ++id) {  // even where a pass has put them into the block
      if (trained.node(id).op == Op::Send || trained.node(id).op == Op::Recv) trained.node(id).block = chunk;
    }
    const Graph graph = recompute(trained, {RecomputeKind::Full, 0});
    verify(graph, "recompute");
    for (const Node& node : graph.nodes()) {
      if (node.op == Op::Send || node.op == Op::Recv) {
        EXPECT_NE(node.phase, Phase::Recompute);
      }
    }
  }
}

TEST(CutStage, MessagesHaveTheStorageType) {
  for (int chunk : {0, 1}) {
    const Graph graph = differentiate(apply_precision(half(chunk), {.storage = DType::BF16}));
    verify(graph, "differentiate");
    int messages = 0;
    for (const Node& node : graph.nodes()) {
      if (node.op != Op::Send && node.op != Op::Recv) continue;
      EXPECT_EQ(node.outputs[0].dtype, DType::BF16);
      ++messages;
    }
    EXPECT_EQ(messages, 2);
  }
}

TEST(CutStage, AChunkWithoutALossIsEvaluatedUpToItsSend) {
  const Graph first = inference(half(0), /*keep_logits=*/false);
  verify(first, "inference");
  EXPECT_EQ(print(first), print(half(0)));
  const Graph last = inference(half(1), /*keep_logits=*/false);
  verify(last, "inference");
  ASSERT_EQ(last.outputs().size(), 1U);
  EXPECT_EQ(last.outputs()[0].name, "stats");
}

TEST(CutStage, GivesBlocksLeftOverToTheChunksBeforeTheLast) {
  EXPECT_EQ(chunk_of_blocks(6, 3), (std::vector<int>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(chunk_of_blocks(7, 3), (std::vector<int>{0, 0, 1, 1, 1, 2, 2}));
  EXPECT_EQ(chunk_of_blocks(5, 3), (std::vector<int>{0, 0, 1, 1, 2}));
  EXPECT_EQ(chunk_of_blocks(3, 2), (std::vector<int>{0, 0, 1}));
}

TEST(CutStage, ChunksOfOneRankAreDealtOutInTurn) {
  Builder b = Builder::for_tokens(1, 2);
  Value x = b.embedding(5, 4, false);
  for (int32_t i = 0; i < 4; ++i) {
    const auto block = b.block(i);
    x = b.add(x, b.linear(x, 4, "mix"));
  }
  b.cross_entropy(b.linear(x, 5, "head"));
  const Graph forward = b.take();
  const Graph third = cut_stage(forward, 2, 4, on(0, 2));
  verify(third, "stage");
  EXPECT_TRUE(third.find("blocks.2.mix.weight").valid());
  EXPECT_FALSE(third.find("blocks.1.mix.weight").valid());
  EXPECT_EQ(third.nodes().front().attrs.integer("peer"), 1);
  EXPECT_EQ(third.nodes().back().attrs.integer("peer"), 1);
  EXPECT_THROW(cut_stage(forward, 2, 4, on(1, 2)), BugError) << "chunk 2 runs on rank 0";
  EXPECT_THROW(cut_stage(forward, 0, 2, on(0, 1)), BugError) << "two chunks with nobody to send to";
}

TEST(CutStage, OnePartIsTheModelItself) {
  const Graph forward = parse_graph(kTiedModel);
  EXPECT_EQ(print(cut_stage(forward, 0, 1, {})), print(forward));
}

TEST(CutStage, RefusesMorePartsThanBlocks) {
  const std::string error = error_of(parse_graph(kTiedModel), 0, 3, on(0, 3));
  EXPECT_NE(error.find("parallel.pipeline: 3 parts"), std::string::npos) << error;
  EXPECT_NE(error.find("the model has 2"), std::string::npos) << error;
}

TEST(CutStage, RefusesAModelInWhichTwoValuesCross) {
  Builder b = Builder::for_tokens(1, 2);
  const Value embedded = b.embedding(5, 4, false);
  Value x = embedded;
  for (int32_t i = 0; i < 2; ++i) {
    const auto block = b.block(i);
    x = b.add(b.linear(x, 4, "mix"), embedded);  // every block reads the embedding
  }
  b.cross_entropy(b.linear(x, 5, "head"));
  const std::string error = error_of(b.take(), 0, 2, on(0, 2));
  EXPECT_NE(error.find("found 2 (embedding in part 0, add in block 0)"), std::string::npos) << error;
}

TEST(CutStage, RefusesAWeightThatBlocksShare) {
  Builder b = Builder::for_tokens(1, 2);
  Value x = b.embedding(5, 4, false);
  const Value shared = b.param("shared", Shape({4, 4}), "zeros");
  for (int32_t i = 0; i < 3; ++i) {
    const auto block = b.block(i);
    x = b.matmul(x, shared, true);
  }
  b.cross_entropy(b.linear(x, 5, "head"));
  const std::string error = error_of(b.take(), 1, 3, on(1, 3));
  EXPECT_NE(error.find("'shared' is used by parts 0 and 1 and 2 of 3"), std::string::npos) << error;
}

TEST(Differentiate, SumsTheTwoUsesOfATiedTableApartWhenAsked) {
  const Graph graph = differentiate(parse_graph(kTiedModel), {}, /*split_tied=*/true);
  verify(graph, "differentiate");
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::EmbeddingGrad) {
      EXPECT_EQ(graph.node(node.inputs[0].node).name, "grad:embed:embedding");
    }
    if (node.op == Op::MatmulAcc) {
      EXPECT_EQ(graph.node(node.inputs[0].node).name, "grad:embed");
    }
  }
  EXPECT_FALSE(differentiate(half(0), {}, true).find("grad:embed:embedding").valid())
      << "one use, one buffer";
}

}  // namespace
}  // namespace tandem
