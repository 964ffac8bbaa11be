#include "tandem/config/derive.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/text/byte_level_test.h"

namespace tandem {
namespace {

Config load(const std::string& yaml) { return parse_config(yaml, "run.yaml").config; }

TEST(Derive, GivesGpt2ItsFeedForwardWidthAndTiedEmbedding) {
  const ModelConfig model = load("model: {family: gpt2, width: 128, heads: 4}").model;
  EXPECT_EQ(model.ffn, 512);
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_TRUE(model.tied);
  EXPECT_TRUE(model.qkv_bias);
}

TEST(Derive, RoundsLlamasFeedForwardWidthUpTo64) {
  const ModelConfig model = load("model: {family: llama, width: 512, heads: 8, kv_heads: 4}").model;
  EXPECT_EQ(model.ffn, 1408);  // 8/3 * 512 = 1365.3
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_FALSE(model.tied);
  EXPECT_FALSE(model.qkv_bias);
}

TEST(Derive, KeepsWhatTheUserGave) {
  const ModelConfig model =
      load("model: {family: llama, width: 64, heads: 4, ffn: 100, tied: true, qkv_bias: true}").model;
  EXPECT_EQ(model.ffn, 100);
  EXPECT_TRUE(model.tied);
  EXPECT_TRUE(model.qkv_bias);
}

TEST(Derive, GivesImageModelsImages) {
  const Config config = load("model: {family: resnet}");
  EXPECT_EQ(config.data.train, "builtin:shapes");
  EXPECT_EQ(config.data.eval, "builtin:shapes");
  EXPECT_EQ(config.model.width, 32);
}

TEST(Derive, EvaluatesOnTheTrainingSetUnlessToldOtherwise) {
  EXPECT_EQ(load("data: {train: book.txt}").data.eval, "book.txt");
  EXPECT_EQ(load("data: {train: book.txt, eval: other.txt}").data.eval, "other.txt");
}

TEST(Derive, TakesTheVocabularyFromTheTokenizerAndTheTokenizerFromAPreparedSet) {
  const TemporaryDirectory scratch;
  const std::string folder = scratch.path().string();
  scratch.write("tokenizer.json", byte_level_json());
  const ResolvedConfig named = parse_config("data: {tokenizer: " + folder + "}", "run.yaml");
  EXPECT_EQ(named.config.model.vocab, kByteLevelVocab);
  EXPECT_EQ(named.origin("model.vocab"), "derived from data.tokenizer");
  EXPECT_EQ(load("data: {tokenizer: " + folder + "}\nmodel: {vocab: 512}").model.vocab, 512);
  EXPECT_EQ(load("data: {train: " + folder + "}").data.tokenizer, "bytes");  // not prepared
  scratch.write("index.json", "{}");
  const ResolvedConfig prepared = parse_config("data: {train: " + folder + "}", "run.yaml");
  EXPECT_EQ(prepared.config.data.tokenizer, folder);
  EXPECT_EQ(prepared.origin("data.tokenizer"), "derived from data.train");
  EXPECT_EQ(prepared.config.model.vocab, kByteLevelVocab);
  EXPECT_EQ(load("data: {train: " + folder + ", tokenizer: bytes}").data.tokenizer, "bytes");
  EXPECT_EQ(
      message_of<ConfigError>([] { load("data: {tokenizer: absent.json}"); }),
      "run.yaml:1: data.tokenizer: tokenizer 'absent.json': no such file; expected bytes, a tokenizer.json, "
      "a sentencepiece .model or a directory with one");
}

TEST(Derive, PicksAMicroBatchThatDividesTheBatch) {
  EXPECT_EQ(load("train: {batch: 4}").train.micro_batch, 4);
  EXPECT_EQ(load("train: {batch: 12}").train.micro_batch, 6);
  EXPECT_EQ(load("train: {batch: 13}").train.micro_batch, 1);
  EXPECT_EQ(load("train: {batch: 64}").train.micro_batch, 8);
}

TEST(Derive, PicksAMicroBatchThatSuitsTheMesh) {
  const std::string text = "model: {context: 255, heads: 4, width: 64}\n";
  EXPECT_EQ(load(text + "train: {batch: 12}\nparallel: {tensor: 4}").train.micro_batch, 4) << "1020 rows";
  EXPECT_EQ(load("train: {batch: 16}\nparallel: {strategy: ddp, data: 4}").train.micro_batch, 4);
  EXPECT_EQ(
      load("train: {batch: 24}\nparallel: {pipeline: 2, schedule: interleaved, chunks: 2}").accumulation(),
      4);
}

TEST(Derive, WarmsUpOverATenthOfTheSteps) {
  const ResolvedConfig resolved = parse_config("train: {steps: 1000}", "run.yaml");
  EXPECT_EQ(resolved.config.train.warmup, 100);
  EXPECT_EQ(resolved.origin("train.warmup"), "derived from train.steps");
  EXPECT_EQ(load("train: {steps: 1000, warmup: 5}").train.warmup, 5);
}

TEST(Derive, CountsAccumulationPasses) {
  EXPECT_EQ(load("train: {batch: 32, micro_batch: 4}").accumulation(), 8);
}

TEST(Derive, TheDataAxisTakesTheRanksThatTheOthersLeave) {
  const auto data = [](const std::string& yaml, int num_ranks) {
    return parse_config(yaml, "run.yaml", {}, num_ranks).config.parallel.data;
  };
  EXPECT_EQ(4, data("parallel: {strategy: fsdp}", 4));
  EXPECT_EQ(2, data("parallel: {strategy: zero1, tensor: 2}\nmodel: {heads: 4, width: 64}", 4));
  EXPECT_EQ(1, data("parallel: {strategy: ddp, data: 1}", 4));  // as asked
  EXPECT_EQ(1, data("parallel: {tensor: 2}\nmodel: {heads: 4, width: 64}", 4));
  EXPECT_EQ("derived from the number of ranks",
            parse_config("parallel: {strategy: ddp}", "run.yaml", {}, 2).origin("parallel.data"));
}

TEST(Derive, TakesWhatTheOptimizerIsUsuallyGiven) {
  const ResolvedConfig lion = parse_config("train: {optimizer: lion}", "run.yaml");
  EXPECT_EQ(lion.config.train.lr, 1e-4);
  EXPECT_EQ(lion.config.train.hyper[hyper_key_index("train.beta1")], 0.9);
  EXPECT_EQ(lion.config.train.hyper[hyper_key_index("train.beta2")], 0.99);
  EXPECT_EQ(lion.origin("train.beta2"), "derived from train.optimizer");
  const ResolvedConfig given = parse_config("train: {optimizer: lion, lr: 1.0e-3, beta2: 0.95}", "run.yaml");
  EXPECT_EQ(given.config.train.lr, 1e-3);
  EXPECT_EQ(given.config.train.hyper[hyper_key_index("train.beta2")], 0.95);
}

}  // namespace
}  // namespace tandem
