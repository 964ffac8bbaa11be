#include "tandem/compile/passes/tensor_axis.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/fuse.h"
#include "tandem/compile/passes/inference.h"
#include "tandem/compile/passes/precision.h"
#include "tandem/compile/passes/recompute.h"
#include "tandem/ir/text.h"
#include "tandem/ir/verify.h"
#include "tandem/models/model.h"

namespace tandem {
namespace {

MeshPosition place(int size, int rank) { return MeshPosition::of({1, size, 1}, rank); }

ModelConfig tiny(Family family) {
  ModelConfig config;
  config.family = family;
  config.layers = 1;
  config.width = 8;
  config.heads = 4;
  config.kv_heads = 2;
  config.context = 4;
  config.vocab = 16;
  config.ffn = 12;
  config.tied = true;
  config.qkv_bias = true;
  return config;
}

std::string attr(const Graph& graph, std::string_view param, std::string_view name) {
  const Attrs& attrs = graph.node(graph.find(param).node).attrs;
  return attrs.has(name) ? attrs.text(name) : "";
}

int count(const Graph& graph, Op op, Phase phase) {
  int n = 0;
  for (const Node& node : graph.nodes()) n += node.op == op && node.phase == phase ? 1 : 0;
  return n;
}

std::string refusal(const Graph& model, int size) {
  try {
    shard_tensor(model, place(size, 0));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TensorAxis, TakesAPointwiseOpAsItsOperandIsSplit) {
  Builder b = Builder::for_tokens(1, 4);
  Value x = b.embedding(6, 2, false);
  const Value up = b.softcap(b.linear(x, 8, "up", {.dims = "ffn,width"}), 5.0);
  x = b.add(x, b.linear(up, 2, "down", {.dims = "width,ffn"}));
  b.cross_entropy(b.matmul(x, b.param_named("embed.weight"), true));
  const std::string text = print(shard_tensor(b.take(), place(2, 0)));
  EXPECT_NE(text.find("%11 = softcap(%10) {cap=5.0} : f32[1,4,4]"), std::string::npos) << text;
}

// A block of half a transformer: positions, a norm, a linear out of the residual stream and one back into it.
Graph half_block() {
  Builder b = Builder::for_tokens(1, 4);
  const Value x = b.embedding(6, 2, /*positions=*/true);
  Value y;
  {
    const auto block = b.block(0);
    y = b.gelu(b.linear(b.rms_norm(x, "norm"), 8, "up", {.dims = "ffn,width"}));
    y = b.add(x, b.linear(y, 2, "down", {.dims = "width,ffn"}));
  }
  b.cross_entropy(b.matmul(y, b.param_named("embed.weight"), /*trans_b=*/true));
  return b.take();
}

TEST(TensorAxis, SplitsLinearsVocabularyAndRows) {
  const Graph graph = shard_tensor(half_block(), place(2, 1));
  verify(graph, "tensor");
  EXPECT_EQ(print(graph), R"(%0 = input "tokens" : i32[1,4]
%1 = input "targets" : i32[1,4]
%2 = param "embed.weight" {boxes="3:6,0:2", dims="vocab,width", init="normal:0.02", logical="6,2"} : f32[8,2]
%3 = embedding(%0, %2) {first=3, valid=3} : f32[1,4,2]
%4 = reshape(%3) {shape="4,2"} : f32[4,2]
%5 = reduce_scatter(%4) {accumulate=0, axis="tensor", size=2} : f32[2,2]
%6 = param "blocks.0.norm.weight" {init="ones", tensor_sum=1} block 0 : f32[2]
%7, %8 = rms_norm(%5, %6) {eps=1e-05} block 0 : f32[2,2], f32[2]
%9 = param "blocks.0.up.weight" {boxes="4:8,0:2", dims="ffn,width", init="normal:0.02", logical="8,2"} block 0 : f32[4,2]
%10 = param "blocks.0.up.bias" {boxes="4:8,0:1", dims="ffn", init="zeros", logical="8"} block 0 : f32[4]
%11 = all_gather(%7) {axis="tensor", size=2} block 0 : f32[4,2]
%12 = reshape(%11) {shape="1,4,2"} block 0 : f32[1,4,2]
%13 = matmul(%12, %9, %10) {trans_a=0, trans_b=1} block 0 : f32[1,4,4]
%14 = gelu(%13) block 0 : f32[1,4,4]
%15 = param "blocks.0.down.weight" {boxes="0:2,4:8", dims="width,ffn", init="normal:0.02", logical="2,8"} block 0 : f32[2,4]
%16 = matmul(%14, %15) {trans_a=0, trans_b=1} block 0 : f32[1,4,2]
%17 = reshape(%16) {shape="4,2"} block 0 : f32[4,2]
%18 = reduce_scatter(%17) {accumulate=0, axis="tensor", size=2} block 0 : f32[2,2]
%19 = add(%5, %18) block 0 : f32[2,2]
%20 = all_gather(%19) {axis="tensor", size=2} : f32[4,2]
%21 = reshape(%20) {shape="1,4,2"} : f32[1,4,2]
%22 = matmul(%21, %2) {trans_a=0, trans_b=1} : f32[1,4,8]
%23 = vocab_parts(%22, %1) {first=3, valid=3} : f32[4,4]
%24 = all_gather(%23) {axis="tensor", size=2} : f32[8,4]
%25 = vocab_loss(%24, %1) {size=2} : f64[2]
output "logits" %22
output "stats" %25
)");
}

// Every id lies on one rank, and all ranks have as many rows.
TEST(TensorAxis, PadsAVocabularyThatDoesNotDivide) {
  ModelConfig config = tiny(Family::Gpt2);
  config.heads = config.kv_heads = 4;
  config.vocab = 50257;
  int64_t next = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const Graph graph = shard_tensor(build_model(config, 1), place(4, rank));
    verify(graph, "tensor");
    const int64_t valid = rank == 0 ? 12565 : 12564;
    EXPECT_EQ(attr(graph, "embed.weight", "boxes"), fmt::format("{}:{},0:8", next, next + valid));
    EXPECT_EQ(graph.type(graph.find("embed.weight")).shape, Shape({12568, 8}));
    for (const Node& node : graph.nodes()) {
      if (node.op != Op::Embedding && node.op != Op::VocabParts) continue;
      EXPECT_EQ(node.attrs.integer("first"), next);
      EXPECT_EQ(node.attrs.integer("valid"), valid);
    }
    next += valid;
  }
  EXPECT_EQ(next, config.vocab);
  config.vocab = 3;
  EXPECT_EQ(refusal(build_model(config, 1), 4),
            "embed.weight: cannot be split over parallel.tensor = 4: its 3 rows are fewer than the ranks; "
            "parallel.tensor: 1 works");
}

TEST(TensorAxis, GivesWhatIsAddedToPartialSumsToTheFirstRankAlone) {
  const Graph first = shard_tensor(half_block(), place(2, 0));
  const Graph second = shard_tensor(half_block(), place(2, 1));
  verify(first, "tensor");
  for (const char* name : {"pos.weight", "blocks.0.down.bias"}) {
    EXPECT_TRUE(first.find(name).valid()) << name;
    EXPECT_EQ(attr(first, name, "boxes"), "") << name;
    EXPECT_FALSE(second.find(name).valid()) << name;
  }
}

TEST(TensorAxis, LeavesAModelOnATensorAxisOfOneAlone) {
  const Graph model = build_model(tiny(Family::Llama), 2);
  EXPECT_EQ(print(shard_tensor(model, place(1, 0))), print(model));
}

TEST(TensorAxis, KeepsTheQueriesKeysAndValuesOfAHeadTogether) {
  const Graph graph = shard_tensor(build_model(tiny(Family::Llama), 2), place(2, 1));
  verify(graph, "tensor");
  EXPECT_EQ(attr(graph, "blocks.0.qkv.weight", "boxes"), "4:8,0:8;10:12,0:8;14:16,0:8");
  EXPECT_EQ(attr(graph, "blocks.0.qkv.weight", "logical"), "16,8");
  EXPECT_EQ(attr(graph, "blocks.0.qkv.bias", "boxes"), "4:8,0:1;10:12,0:1;14:16,0:1");
  EXPECT_EQ(attr(graph, "blocks.0.qkv.bias", "logical"), "16");
  EXPECT_EQ(attr(graph, "blocks.0.gate_up.weight", "boxes"), "6:12,0:8;18:24,0:8") << "gate, then up";
  EXPECT_EQ(attr(graph, "blocks.0.out.weight", "boxes"), "0:8,4:8");
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::Attention && node.op != Op::Rope) continue;
    EXPECT_EQ(node.attrs.integer("heads"), 2);
    EXPECT_EQ(node.attrs.integer("kv_heads"), 1);
  }
}

TEST(TensorAxis, GathersOnceForSeveralLinears) {
  Builder b = Builder::for_tokens(1, 4);
  const Value x = b.embedding(6, 4, false);
  const LinearOptions heads{.bias = false, .dims = "heads,width"};
  const Value q = b.linear(x, 4, "q", heads), k = b.linear(x, 4, "k", heads), v = b.linear(x, 4, "v", heads);
  const Value y = b.linear(b.attention(q, k, v, 2, 2), 4, "out", {.dims = "width,heads"});
  b.cross_entropy(b.linear(y, 6, "head", {.dims = "vocab,width"}));
  const Graph graph = shard_tensor(b.take(), place(2, 0));
  verify(graph, "tensor");
  EXPECT_EQ(count(graph, Op::AllGather, Phase::Forward), 3) << "for q, k and v; for the head; of the loss";
}

TEST(TensorAxis, MeetsItsGradientInTheOtherCollective) {
  const Graph graph = differentiate(shard_tensor(half_block(), place(2, 1)));
  verify(graph, "differentiate");
  EXPECT_EQ(count(graph, Op::ReduceScatter, Phase::Backward), 2) << "of the two gathers of rows";
  EXPECT_EQ(count(graph, Op::AllGather, Phase::Backward), 2) << "of the embedding and of the linear back";
  const std::string text = print(graph);
  EXPECT_NE(text.find("vocab_loss_grad(%22, %1, %24, %25) {first=3, size=2, valid=3}"), std::string::npos)
      << text;
  EXPECT_NE(text.find("{first=3, valid=3} backward"), std::string::npos) << text;
  EXPECT_EQ(count(graph, Op::VocabLoss, Phase::Forward), 0);
}

TEST(TensorAxis, PartialSumsAreRoundedOnceTheyAreAddedUp) {
  const Graph forward = shard_tensor(half_block(), place(2, 1));
  const Graph graph = differentiate(apply_precision(forward, {.storage = DType::BF16}));
  verify(graph, "differentiate");
  const std::string text = print(graph);
  for (const char* line : {
           "%16 = matmul(%14, %15) {trans_a=0, trans_b=1, wide=1} block 0 : f32[1,4,2]\n",
           "%18 = reduce_scatter(%17) {accumulate=0, axis=\"tensor\", dtype=\"bf16\", size=2} block 0 : "
           "bf16[2,2]\n",
           "%13 = matmul(%12, %9, %10) {trans_a=0, trans_b=1, wide_grad=1} block 0 : bf16[1,4,4]\n",
           // Of one rank's row and zeros: exact in any type.
           "%5 = reduce_scatter(%4) {accumulate=0, axis=\"tensor\", size=2} : bf16[2,2]\n",
       })
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  int wide = 0;
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::Backward) continue;
    if (node.op == Op::Matmul) wide += node.outputs[0].dtype == DType::F32 ? 1 : 0;
    if (node.op != Op::ReduceScatter) continue;
    EXPECT_EQ(graph.type(node.inputs[0]).dtype, DType::F32);
    EXPECT_EQ(node.outputs[0].dtype, DType::BF16);
  }
  EXPECT_EQ(wide, 2) << "gradients of what the linear and the head have gathered";

  const PrecisionPolicy stored{.storage = DType::BF16, .partial = DType::BF16};
  EXPECT_EQ(print(differentiate(apply_precision(forward, stored))).find("wide"), std::string::npos);
}

TEST(TensorAxis, FusesOnLocalRowsButNeverChunksTheSplitLoss) {
  const FuseOptions chunk_all{.chunk_logits_above = 0, .chunk_bytes = 64};
  const Graph forward = shard_tensor(build_model(tiny(Family::Gpt2), 2), place(2, 0));
  const Graph graph = fuse(differentiate(forward), chunk_all);
  verify(graph, "fuse");
  EXPECT_EQ(count(graph, Op::MatmulGelu, Phase::Forward), 1);
  EXPECT_EQ(count(graph, Op::AddLayerNorm, Phase::Forward), 2);
  EXPECT_EQ(count(graph, Op::Add, Phase::Forward), 0);
  EXPECT_EQ(count(graph, Op::Add, Phase::Backward), 0) << "residual gradients join the norm gradients";
  EXPECT_EQ(count(graph, Op::VocabLossGrad, Phase::Backward), 1);
  const Graph eval = fuse(inference(forward, /*keep_logits=*/false), chunk_all);
  EXPECT_EQ(count(eval, Op::VocabLoss, Phase::Forward), 1);
}

TEST(TensorAxis, RecomputationGathersRowsAgain) {
  const Graph model = build_model(tiny(Family::Llama), 2);
  const Graph graph = differentiate(shard_tensor(model, place(2, 0)));
  for (RecomputeKind kind : {RecomputeKind::Selective, RecomputeKind::Full}) {
    const Graph again = recompute(graph, {kind, 0});
    verify(again, "recompute");
    EXPECT_EQ(count(again, Op::AllGather, Phase::Recompute), 2);
    EXPECT_EQ(count(again, Op::ReduceScatter, Phase::Recompute), kind == RecomputeKind::Full ? 1 : 0)
        << "the sum in the middle of the block";
    EXPECT_EQ(count(again, Op::VocabParts, Phase::Recompute), 0);
  }
}

TEST(TensorAxis, RefusesSizesThatDoNotDivideByName) {
  EXPECT_EQ(
      refusal(build_model(tiny(Family::Llama), 2), 4),
      "blocks.0.qkv.weight: 2 key and value heads do not divide over parallel.tensor = 4; use a multiple "
      "of 4, or a parallel.tensor that divides 2");
  ModelConfig config = tiny(Family::Llama);
  config.ffn = 13;
  EXPECT_TRUE(refusal(build_model(config, 2), 2).starts_with("blocks.0.gate_up.weight: 13 rows"));
  config = tiny(Family::Gpt2);
  config.context = 3;
  EXPECT_TRUE(refusal(build_model(config, 1), 2).starts_with("embed.weight: 3 rows (train.micro_batch"));
}

TEST(TensorAxis, RefusesModelsItDoesNotKnowHowToSplit) {
  ModelConfig config = tiny(Family::Resnet);
  config.image_size = 8;
  EXPECT_TRUE(refusal(build_model(config, 2), 2).starts_with("stem.weight: cannot be split over"));
  config.family = Family::Mlp;
  const std::string mlp = refusal(build_model(config, 2), 2);
  EXPECT_TRUE(mlp.starts_with("blocks.0.hidden.weight: cannot be split over")) << mlp;
  EXPECT_NE(mlp.find("'out,in'"), std::string::npos) << mlp;
}

TEST(TensorAxis, RefusesParametersUsedWhereNothingSplitsThem) {
  Builder b = Builder::for_tokens(1, 4);
  const Value x = b.embedding(6, 4, false);
  b.cross_entropy(b.linear(b.add(x, b.gelu(b.param("shift", Shape({1, 4, 4}), "zeros"))), 6, "head"));
  EXPECT_TRUE(refusal(b.take(), 2).starts_with("shift: cannot be split over"));
}

TEST(TensorAxis, RefusesLinearsThatDoNotFitTogether) {
  const auto model = [](const std::string& up, const std::string& down) {
    Builder b = Builder::for_tokens(1, 4);
    const Value x = b.embedding(6, 4, false);
    const Value y = b.linear(b.linear(x, 4, "up", {.dims = up}), 4, "down", {.dims = down});
    b.cross_entropy(b.linear(b.add(x, y), 6, "head", {.dims = "vocab,width"}));
    return b.take();
  };
  EXPECT_EQ(refusal(model("ffn,width", "width,ffn"), 2), "");
  EXPECT_TRUE(refusal(model("width,ffn", "width,ffn"), 2).starts_with("up.weight: "));
  EXPECT_TRUE(refusal(model("ffn,width", "ffn,width"), 2).starts_with("down.weight: "));
  EXPECT_TRUE(refusal(model("ffn,width", "width,other"), 2).starts_with("down.weight: "));
}

}  // namespace
}  // namespace tandem
