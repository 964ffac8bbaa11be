#include "tandem/hub/fill_model.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/config/print.h"

namespace tandem::hub {
namespace {

constexpr const char* kLlama =
    R"({"model_type":"llama","vocab_size":300,"hidden_size":32,"intermediate_size":48,
    "num_hidden_layers":2,"num_attention_heads":4,"max_position_embeddings":4096,"tie_word_embeddings":true})";

class FillModelTest : public testing::Test {
 protected:
  ResolvedConfig load(const std::string& keys, const std::filesystem::path& kept = {}) const {
    const std::string yaml = fmt::format("model: {{from: {}{}}}\n", directory_.path().string(), keys);
    return parse_config(yaml, "run.yaml", {}, 1,
                        [&](ResolvedConfig& resolved) { fill_model(resolved, kept); });
  }
  std::string refusal(const std::string& keys) const {
    return message_of<ConfigError>([&] { load(keys); });
  }
  const TemporaryDirectory directory_;
};

TEST_F(FillModelTest, KeysComeFromTheDirectory) {
  directory_.write("config.json", kLlama);
  const ResolvedConfig resolved = load("");
  const ModelConfig& model = resolved.config.model;
  EXPECT_EQ(Family::Llama, model.family);
  EXPECT_EQ(32, model.width);
  EXPECT_TRUE(model.tied) << "llama's own default is another";
  EXPECT_EQ(2048, model.context);
  EXPECT_EQ("derived from model.from", resolved.origin("model.width"));
  EXPECT_EQ("derived from model.from", resolved.origin("model.tied"));
}

TEST_F(FillModelTest, WhatTheUserSaysMayOnlyAgree) {
  directory_.write("config.json", kLlama);
  EXPECT_NO_THROW(load(", width: 32, heads: 4, kv_heads: 0"));
  EXPECT_EQ(512, load(", context: 512").config.model.context);
  EXPECT_TRUE(load(", context: 512").notes.empty());
  EXPECT_EQ(1u, load(", context: 8192").notes.size());
  const std::string message = refusal(", width: 64");
  EXPECT_TRUE(message.starts_with("run.yaml:1: model.width: is 64, but ")) << message;
  EXPECT_NE(std::string::npos, refusal(", family: gpt2").find("model.family"));
}

TEST_F(FillModelTest, AKeptCopyDoesWhereTheDirectoryIsGone) {
  EXPECT_NE(std::string::npos, refusal("").find("holds no config.json"));
  const TemporaryDirectory kept;
  kept.write("config.json", kLlama);
  EXPECT_EQ(32, load("", kept.path()).config.model.width);
}

TEST_F(FillModelTest, AConfigThatARunHasWrittenNeedsNoDirectory) {
  directory_.write("config.json", kLlama);
  const Config config = load("").config;
  const std::string yaml = to_yaml(config);
  std::filesystem::remove(directory_.path() / "config.json");
  const auto fill = [](ResolvedConfig& resolved) { fill_model(resolved, {}); };
  EXPECT_EQ(config, parse_config(yaml, "config.yaml", {}, 1, fill).config);
}

}  // namespace
}  // namespace tandem::hub
