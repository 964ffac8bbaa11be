#include "tandem/config/validate_size.h"

#include <gtest/gtest.h>

#include "tandem/config/keys.h"
#include "tandem/config/rejection_test.h"

namespace tandem {
namespace {

TEST(ValidateSize, HasUpperEndsForWhatACompilerWalksThrough) {
  EXPECT_EQ(rejection("", {{"model.layers=100000"}}),
            "--set model.layers: expected a whole number of at least 1 and at most 2048, found '100000'");
  EXPECT_EQ(rejection("model: {family: resnet, blocks: [2000, 49]}"),
            "run.yaml:1: a model has at most 2048 blocks, found 2049; use fewer");
}

TEST(ValidateSize, RefusesProductsThatNoCounterHolds) {
  const std::string message =
      rejection("model: {width: 1048576, heads: 16, layers: 2048, context: 16777216, vocab: 16777216}");
  EXPECT_TRUE(message.starts_with("run.yaml:1: model.")) << message;
  EXPECT_NE(message.find("use a smaller model."), std::string::npos) << message;
  EXPECT_NE(rejection("model: {family: mlp, width: 1048576, image_size: 16384}\n"
                      "train: {batch: 1048576, micro_batch: 1048576}"),
            "");
  EXPECT_NE(
      rejection("model: {family: resnet, width: 1048576, image_size: 16384, blocks: [1, 1, 1, 1, 1, 1]}"),
      "");
  EXPECT_EQ(rejection("data: {prefetch: 1048576}\ntrain: {batch: 1048576, micro_batch: 1048576}",
                      {{"model.context=1e7"}})
                .substr(0, 15),
            "run.yaml:1: dat");
}

TEST(ValidateSize, BoundsWhatAPipelineRankUnrolls) {
  const std::string message =
      rejection("model: {layers: 64}\ntrain: {batch: 1048576, micro_batch: 1}\nparallel: {pipeline: 2}");
  EXPECT_EQ(message,
            "run.yaml:2: a pipeline rank of 32 blocks takes at most 512 passes a step, found train.batch / "
            "(train.micro_batch * parallel.data) = 1048576; use a larger train.micro_batch or a smaller "
            "train.batch");
}

// A trillion parameters, a context of a million tokens, a thousand layers, images of 4096 pixels a side.
TEST(ValidateSize, TakesTheLargestThatWereEverTrained) {
  EXPECT_EQ(
      rejection(
          "model: {family: llama, width: 25600, heads: 160, layers: 128, vocab: 262144, context: 8192}"),
      "");
  EXPECT_EQ(
      rejection(
          "model: {family: llama, width: 5120, heads: 40, layers: 48, vocab: 202048, context: 1048576}\n"
          "train: {batch: 1, micro_batch: 1}"),
      "");
  EXPECT_EQ(rejection("model: {width: 1024, heads: 16, layers: 1000}"), "");
  EXPECT_EQ(rejection("model: {family: resnet, width: 64, image_size: 4096, blocks: [3, 4, 23, 3]}"), "");
  EXPECT_EQ(rejection("train: {batch: 16777216, micro_batch: 64}"), "");
}

TEST(ValidateSize, EveryCountHasAnUpperEnd) {
  for (const Key& key : keys()) {
    if (!key.expects.starts_with("a whole number") || key.path == "train.seed") continue;
    if (key.path == "train.tokens") continue;  // only divided, and the steps that come of it have an end
    EXPECT_LE(key.limits.max, kMaxCount) << key.path;
  }
}

}  // namespace
}  // namespace tandem
