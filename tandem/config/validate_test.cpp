#include "tandem/config/validate.h"

#include <gtest/gtest.h>

#include "tandem/config/rejection_test.h"

namespace tandem {
namespace {

TEST(Validate, NamesTheNearestBatchesThatDivide) {
  EXPECT_EQ(rejection("name: a\ntrain: {batch: 30, micro_batch: 8}"),
            "run.yaml:2: train.batch must be a multiple of train.micro_batch * parallel.data = 8 * 1 "
            "= 8, found 30; use train.batch = 24 or 32");
  EXPECT_EQ(rejection("train: {batch: 4, micro_batch: 8}"),
            "run.yaml:1: train.batch must be a multiple of train.micro_batch * parallel.data = 8 * 1 "
            "= 8, found 4; use train.batch = 8");
  EXPECT_EQ(rejection("train: {batch: 16, micro_batch: 4}", {{"parallel.data=3"}}),
            "run.yaml:1: train.batch must be a multiple of train.micro_batch * parallel.data = 4 * 3 "
            "= 12, found 16; use train.batch = 12 or 24");
}

TEST(Validate, PointsAtTheKeyTheUserWrote) {
  const std::string message = rejection("", {{"train.micro_batch=5"}});
  EXPECT_TRUE(message.starts_with("--set train.micro_batch: train.batch must be a multiple of")) << message;
}

TEST(Validate, NamesTheNearestHeadsThatDivideTheWidth) {
  EXPECT_EQ(rejection("model:\n  width: 128\n  heads: 6\n"),
            "run.yaml:3: model.heads must divide model.width, and 6 does not divide 128; use "
            "model.heads = 4 or 8");
  EXPECT_EQ(rejection("model: {width: 64, heads: 100}"),
            "run.yaml:1: model.heads must divide model.width, and 100 does not divide 64; use "
            "model.heads = 64");
}

TEST(Validate, NamesTheNearestKeyValueHeads) {
  EXPECT_EQ(rejection("model: {family: llama, width: 64, heads: 8, kv_heads: 3}"),
            "run.yaml:1: model.kv_heads must divide model.heads, and 3 does not divide 8; use "
            "model.kv_heads = 2 or 4");
}

TEST(Validate, WantsAnEvenHeadWidthForRotaryPositions) {
  const std::string yaml = "model: {family: llama, width: 15, heads: 5}";
  EXPECT_EQ(rejection(yaml),
            "run.yaml:1: rotary positions need an even model.head, found 3; use other heads");
  EXPECT_EQ(rejection("model: {family: gpt2, width: 15, heads: 5}"), "");
}

TEST(Validate, TakesHeadsOfAnyWidth) {
  EXPECT_EQ(rejection("model: {family: llama, width: 60, heads: 8, head: 16}"), "");
  EXPECT_EQ(
      rejection("model: {family: llama, width: 64, heads: 8, head: 16, rope_dims: 18}"),
      "run.yaml:1: model.rope_dims: expected an even number of features, at most model.head = 16, found 18");
}

TEST(Validate, ReadsTheWayPositionsAreStretched) {
  EXPECT_EQ(rejection("model: {family: llama, rope_scaling: 'linear:factor=2'}"), "");
  EXPECT_EQ(rejection("model: {family: llama, rope_scaling: 'linear:factr=2'}"),
            "run.yaml:1: model.rope_scaling: expected linear to have factor only, found 'factr'");
  EXPECT_EQ(rejection("model: {family: llama, full_layers: [6]}"),
            "run.yaml:1: model.full_layers: the last of model.layers = 6 is layer 5, found 6");
}

TEST(Validate, KeepsHeadsTogetherWhoseNormIsOne) {
  EXPECT_EQ(
      rejection("model: {family: llama, qk_norm: all}\nparallel: {tensor: 2, strategy: ddp}"),
      "run.yaml:2: model.qk_norm all takes the norm of all heads together, which parallel.tensor splits; "
      "use parallel.tensor = 1 and the data axis");
}

TEST(Validate, RefusesSettingsOfAnotherFamily) {
  EXPECT_EQ(
      rejection("model: {family: resnet, heads: 4}"),
      "run.yaml:1: model.heads: a resnet model has no such setting (it belongs to gpt2, llama); remove it");
  EXPECT_EQ(rejection("model: {family: gpt2, kv_heads: 2}"),
            "run.yaml:1: model.kv_heads: a gpt2 model has no such setting (it belongs to llama); remove it");
}

TEST(Validate, RefusesSettingsOfAnotherOptimizer) {
  EXPECT_EQ(
      rejection("train: {momentum: 0.5}"),
      "run.yaml:1: train.momentum: adamw has no such setting (it belongs to sgd, muon, lars); remove it");
  EXPECT_EQ(rejection("train: {optimizer: lion}", {{"train.eps=1e-6"}}),
            "--set train.eps: lion has no such setting (it belongs to adamw, muon, lamb, lars, "
            "adafactor, schedule_free_adamw); remove it");
  EXPECT_EQ(rejection("train: {optimizer: sgd, beta2: 0.9}"),
            "run.yaml:1: train.beta2: sgd has no such setting (it belongs to adamw, lion, muon, lamb, "
            "schedule_free_adamw); remove it");
}

TEST(Validate, ChecksGroupsAndStagesOfResnet) {
  EXPECT_EQ(rejection("model: {family: resnet, width: 32, norm: group, groups: 5}"),
            "run.yaml:1: model.groups must divide model.width, and 5 does not divide 32; use "
            "model.groups = 4 or 8");
  EXPECT_EQ(rejection("model: {family: resnet, width: 36, groups: 5}"), "") << "norm: batch has no groups";
  EXPECT_EQ(
      rejection("model: {family: resnet, image_size: 4, blocks: [1, 1, 1, 1]}"),
      "run.yaml:1: 4 stages of model.blocks halve model.image_size 4 to nothing; use fewer stages or larger "
      "images");
}

TEST(Validate, RefusesANameThatIsNoDirectory) {
  const std::string expected = "expected letters, digits, '.', '_' and '-' (it names a directory), found ";
  EXPECT_EQ(rejection("name: a/b"), "run.yaml:1: name: " + expected + "'a/b'");
  EXPECT_EQ(rejection("name: .."), "run.yaml:1: name: " + expected + "'..'");
  EXPECT_EQ(rejection("name: ''"), "run.yaml:1: name: " + expected + "''");
}

}  // namespace
}  // namespace tandem
