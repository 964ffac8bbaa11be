#include "tandem/train/config_changes.h"

#include <gtest/gtest.h>

#include <set>

#include "tandem/base/error.h"
#include "tandem/config/keys.h"
#include "tandem/config/load.h"
#include "tandem/config/print.h"

namespace tandem {
namespace {

Config config_of(const std::string& family, std::vector<std::string> sets = {}) {
  std::vector<Override> overrides;
  for (std::string& set : sets) overrides.push_back({std::move(set)});
  return parse_config("model: {family: " + family + "}", "run.yaml", overrides).config;
}

Manifest made_with(const Config& config) {
  Manifest manifest;
  manifest.meta.config = to_json(config);
  manifest.directory = "runs/a/checkpoints/step-00000010";
  return manifest;
}

std::string refusal(void (*require)(const Manifest&, const Config&), const Config& before,
                    const Config& after) {
  try {
    require(made_with(before), after);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(ConfigChanges, EveryKeyIsInTheTableOnceAndNothingElseIs) {
  std::set<std::string_view> listed, known;
  for (const KeyRule& rule : key_rules()) EXPECT_TRUE(listed.insert(rule.key).second) << rule.key << " twice";
  for (const Key& key : keys()) known.insert(key.path);
  EXPECT_EQ(listed, known);
}

TEST(ConfigChanges, AKeyThatChangesWhatTheWeightsComputeIsRefused) {
  const Config llama = config_of("llama"), gpt2 = config_of("gpt2"), resnet = config_of("resnet");
  for (const char* set :
       {"model.heads=3", "model.kv_heads=3", "model.rope_theta=500000", "model.norm_eps=1e-6",
        "model.ffn=512", "model.tied=true", "model.qkv_bias=true", "model.layers=2", "model.vocab=512",
        "model.window=8", "model.qk_norm=head", "model.rope_scaling=linear:factor=2", "model.logit_scale=0.5",
        "model.family=gpt2"}) {
    const std::string message = refusal(require_resumable, llama, config_of("llama", {set}));
    const std::string key = std::string(set).substr(0, std::string(set).find('='));
    EXPECT_TRUE(message.starts_with(key + ": ")) << message;
    EXPECT_FALSE(refusal(require_same_function, llama, config_of("llama", {set})).empty()) << set;
  }
  EXPECT_FALSE(refusal(require_resumable, gpt2, config_of("gpt2", {"model.context=128"})).empty());
  EXPECT_FALSE(refusal(require_resumable, resnet, config_of("resnet", {"model.norm=group"})).empty());
  EXPECT_EQ(refusal(require_resumable, llama, config_of("llama", {"model.heads=2", "model.norm_eps=0.1"})),
            "model.heads: is 2, but runs/a/checkpoints/step-00000010 was trained with 6: it is of another "
            "model (and model.kv_heads, model.head, model.rope_dims, model.norm_eps); set model.heads=6 to "
            "go on, or start "
            "anew with another --run-dir or --resume-from-checkpoint none");
  EXPECT_TRUE(refusal(require_same_function, llama, config_of("llama", {"model.norm_eps=0.1"}))
                  .ends_with("; leave out --set model.norm_eps"));
}

TEST(ConfigChanges, AnotherOptimizerIsRefusedWhereTrainingGoesOnOnly) {
  const Config before = config_of("gpt2"), after = config_of("gpt2", {"train.optimizer=sgd"});
  EXPECT_TRUE(refusal(require_resumable, before, after).starts_with("train.optimizer: is sgd, but "));
  EXPECT_EQ(refusal(require_same_function, before, after), "");
}

TEST(ConfigChanges, WhatIsFreeToChangeIsListedWithBothValues) {
  const Config before = config_of("llama");
  const Config after =
      config_of("llama", {"train.lr=0.01", "precision=bf16", "model.context=512", "threads=2"});
  EXPECT_EQ(refusal(require_resumable, before, after), "");
  std::vector<std::string> texts;
  for (const ConfigChange& change : config_changes(made_with(before).meta, after))
    texts.push_back(change.text());
  EXPECT_EQ(texts, (std::vector<std::string>{"threads 0 -> 2", "model.context 256 -> 512",
                                             "train.lr 0.001 -> 0.01", "precision fp32 -> bf16"}));
  EXPECT_TRUE(config_changes(made_with(before).meta, before).empty());
}

TEST(ConfigChanges, StatisticsOfOneRankMayBecomeThoseOfAll) {
  EXPECT_EQ(refusal(require_resumable, config_of("resnet"), config_of("resnet", {"model.norm=sync"})), "");
  EXPECT_EQ(refusal(require_resumable, config_of("resnet"), config_of("resnet", {"model.groups=4"})), "");
}

TEST(ConfigChanges, AKeyThatAnOlderCheckpointDoesNotKnowHasNotChanged) {
  Manifest manifest = made_with(config_of("gpt2"));
  manifest.meta.config["model"].erase("norm_eps");
  manifest.meta.config.erase("memory");
  EXPECT_TRUE(config_changes(manifest.meta, config_of("gpt2", {"model.norm_eps=0.5"})).empty());
}

}  // namespace
}  // namespace tandem
