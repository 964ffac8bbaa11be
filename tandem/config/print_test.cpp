#include "tandem/config/print.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/base/file.h"
#include "tandem/config/keys.h"
#include "tandem/config/rejection_test.h"

namespace tandem {
namespace {

constexpr const char* kConfigs[] = {
    "",
    "name: 'null'\ntrain: {lr: 0.1, seed: 123456789012345678, eps: 1.0e-12}",
    "model: {family: llama, width: 64, heads: 8, kv_heads: 2, rope_theta: 500000, tied: true}\nprecision: "
    "bf16",
    "model: {family: resnet, blocks: [1, 3], norm: group, groups: 4}\nmemory: {recompute: every:3, limit: "
    "1.5GiB}",
    "model: {family: mlp, layers: 2, width: 10}",
    "train: {optimizer: lion, beta2: 0.98}",
    "train: {optimizer: sgd, momentum: 0.5}",
    "model: {layers: 2}\ndata: {train: 'a b: #c.txt', eval: '~'}",
    "data: {train: '-x', eval: 'C:'}\nlog: {csv: false}\ncheckpoint: {async: false}",
};

TEST(ToYaml, IsReadBackAsTheSameConfig) {
  for (const char* yaml : kConfigs) {
    const Config config = parse_config(yaml, "run.yaml").config;
    EXPECT_EQ(parse_config(to_yaml(config), "copy.yaml").config, config) << to_yaml(config);
  }
}

TEST(ToJson, IsReadBackAsTheSameConfigThroughText) {
  for (const char* yaml : kConfigs) {
    const Config config = parse_config(yaml, "run.yaml").config;
    EXPECT_EQ(config_from_json(nlohmann::json::parse(to_json(config).dump()), "manifest.json"), config)
        << yaml;
  }
}

TEST(ToJson, KeepsTypes) {
  const nlohmann::json json = to_json(parse_config("model: {family: resnet}", "run.yaml").config);
  EXPECT_TRUE(json["train"]["steps"].is_number_integer());
  EXPECT_TRUE(json["train"]["lr"].is_number_float());
  EXPECT_TRUE(json["log"]["csv"].is_boolean());
  EXPECT_EQ(json["model"]["family"], "resnet");
  EXPECT_EQ(json["model"]["blocks"], nlohmann::json({2, 2, 2}));
  EXPECT_EQ(json["memory"]["recompute"], "none");
}

TEST(ConfigFromJson, NamesItsSourceInErrors) {
  const auto message = [](const char* text) -> std::string {
    try {
      config_from_json(nlohmann::json::parse(text), "manifest.json");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(R"({"train": {"step": 1}})"),
            "manifest.json: train.step: no such key; did you mean train.steps?");
  EXPECT_EQ(message(R"({"log": {"csv": 3}})"), "manifest.json: log.csv: expected true or false, found '3'");
  EXPECT_EQ(message("[]"), "manifest.json: expected an object of config keys");
}

TEST(ConfigFromJson, ForgetsWhatOtherOptimizersWouldHave) {
  const Config config =
      config_from_json({{"train", {{"optimizer", "adamw"}, {"momentum", 0.5}}}}, "manifest.json");
  EXPECT_EQ(config, parse_config("name: run", "run.yaml").config);
}

TEST(Explain, ShowsEveryKeyOfTheFamilyWithItsOrigin) {
  const std::vector<Override> overrides = {{"train.batch=16"}};
  const auto rows = explain(parse_config("name: a\nmodel: {width: 64, heads: 4}", "run.yaml", overrides));
  const auto row = [&](std::string_view key) {
    return std::find_if(rows.begin(), rows.end(), [&](const ExplainRow& r) { return r.key == key; });
  };
  ASSERT_NE(row("model.ffn"), rows.end());
  EXPECT_EQ(row("model.ffn")->value, "256");
  EXPECT_EQ(row("model.ffn")->origin, "derived from model.width");
  EXPECT_EQ(row("model.width")->origin, "run.yaml:2");
  EXPECT_EQ(row("train.batch")->origin, "--set");
  EXPECT_EQ(row("train.lr")->value, "0.001");
  EXPECT_EQ(row("train.lr")->origin, "default");
  EXPECT_FALSE(row("train.lr")->doc.empty());
  EXPECT_EQ(row("model.rope_theta"), rows.end()) << "gpt2 has no rotary positions";
}

TEST(KeysMarkdown, HasARowForEveryKey) {
  const std::string page = keys_markdown();
  for (const Key& key : keys())
    EXPECT_NE(page.find("| `" + std::string(key.path) + "` |"), std::string::npos) << key.path;
}

TEST(KeysMarkdown, IsTheTableOfTheDocs) {
  EXPECT_NE(read_text(TANDEM_CONFIGS_DIR "/../docs/config.md").find(keys_markdown()), std::string::npos)
      << "docs/config.md is out of date; its table should be:\n"
      << keys_markdown();
}

}  // namespace
}  // namespace tandem
