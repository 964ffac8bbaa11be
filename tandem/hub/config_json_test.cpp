#include "tandem/hub/config_json.h"

#include <gtest/gtest.h>

#include <limits>

#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/message_of_test.h"

namespace tandem::hub {
namespace {

using nlohmann::json;

HubConfig parse(const json& object) { return parse_config_json(object.dump(), "config.json"); }

json small(const std::string& type, const json& more = json::object()) {
  json object = {{"model_type", type},       {"vocab_size", 99},
                 {"hidden_size", 32},        {"intermediate_size", 64},
                 {"num_hidden_layers", 6},   {"num_attention_heads", 4},
                 {"num_key_value_heads", 2}, {"max_position_embeddings", 128}};
  if (type == "gpt2")
    object = {{"model_type", type}, {"vocab_size", 99}, {"n_embd", 32},
              {"n_layer", 6},       {"n_head", 4},      {"n_positions", 128}};
  object.update(more);
  return object;
}

std::string refusal(const json& object) {
  return message_of<ConfigError>([&] { parse(object); });
}

TEST(ConfigJson, AbsentKeysAreWhatTransformersTakes) {
  const HubConfig llama = parse({{"model_type", "llama"}});
  EXPECT_EQ(Family::Llama, llama.model.family);
  EXPECT_EQ(4096, llama.model.width);
  EXPECT_EQ(32, llama.model.kv_heads);
  EXPECT_EQ(128, llama.model.head);
  EXPECT_EQ(2048, llama.model.context);
  EXPECT_DOUBLE_EQ(1e-6, llama.model.norm_eps);
  EXPECT_FALSE(llama.model.tied);
  EXPECT_EQ(8, parse({{"model_type", "mistral"}}).model.kv_heads);
  EXPECT_EQ(4096, parse({{"model_type", "mistral"}}).model.window);
  EXPECT_EQ(2048, parse({{"model_type", "mistral"}}).model.context);
  EXPECT_EQ(131072, parse({{"model_type", "mistral"}}).positions);
  EXPECT_EQ(128, parse({{"model_type", "qwen3"}}).model.head);
  const HubConfig gpt2 = parse({{"model_type", "gpt2"}});
  EXPECT_EQ(1024, gpt2.model.context);
  EXPECT_EQ(3072, gpt2.model.ffn);
  EXPECT_TRUE(gpt2.model.tied);
  EXPECT_EQ(0u, gpt2.notes.size());  // what the file does not say is not told
}

TEST(ConfigJson, BothVersionsSpellTheSameModel) {
  const json scaling = {{"factor", 32.0},
                        {"high_freq_factor", 4.0},
                        {"low_freq_factor", 1.0},
                        {"original_max_position_embeddings", 8192},
                        {"rope_type", "llama3"}};
  const HubConfig four = parse(
      small("llama", {{"rope_theta", 500000.0}, {"rope_scaling", scaling}, {"torch_dtype", "bfloat16"}}));
  json parameters = scaling;
  parameters["rope_theta"] = 500000.0;
  const HubConfig five = parse(small("llama", {{"rope_parameters", parameters}, {"dtype", "bfloat16"}}));
  EXPECT_EQ(four.model, five.model);
  EXPECT_EQ(four.dtype, five.dtype);
  EXPECT_EQ(DType::BF16, *five.dtype);
  EXPECT_EQ("llama3:factor=32,low_freq_factor=1,high_freq_factor=4,original_max_position_embeddings=8192",
            five.model.rope_scaling);
  EXPECT_NE(std::string::npos,
            refusal(small("llama", {{"rope_parameters", parameters}, {"rope_theta", 10000.0}}))
                .find("says something else"));
}

TEST(ConfigJson, ReadsEveryKindOfRope) {
  const auto scaling = [](const std::string& type, const json& rope) {
    return parse(small(type, {{"rope_scaling", rope}})).model.rope_scaling;
  };
  EXPECT_EQ("none", scaling("llama", nullptr));
  EXPECT_EQ("linear:factor=2.5", scaling("llama", {{"type", "linear"}, {"factor", 2.5}}));
  EXPECT_EQ("yarn:factor=4,original_max_position_embeddings=32",
            scaling("qwen2", {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}}));
  EXPECT_EQ(
      "yarn:factor=4,original_max_position_embeddings=128,beta_fast=16,truncate=0",
      scaling("qwen2", {{"rope_type", "yarn"}, {"factor", 4.0}, {"beta_fast", 16}, {"truncate", false}}));
  const json phi =
      small("phi3",
            {{"original_max_position_embeddings", 64},
             {"partial_rotary_factor", 0.5},
             {"rope_scaling", {{"type", "su"}, {"short_factor", {1.0, 1.5}}, {"long_factor", {2.0, 3.25}}}}});
  EXPECT_EQ(
      "longrope:short_factor=1 1.5,long_factor=2 "
      "3.25,original_max_position_embeddings=64,max_position_embeddings=128",
      parse(phi).model.rope_scaling);
  EXPECT_EQ(4, parse(phi).model.rope_dims);
}

TEST(ConfigJson, GemmaHasLocalThetas) {
  const HubConfig four =
      parse(small("gemma3_text", {{"rope_theta", 1e6},
                                  {"rope_local_base_freq", 1e4},
                                  {"sliding_window", 16},
                                  {"head_dim", 16},
                                  {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}));
  EXPECT_DOUBLE_EQ(1e6, four.model.rope_theta);
  EXPECT_DOUBLE_EQ(1e4, four.model.rope_local_theta);
  EXPECT_EQ((std::vector<int64_t>{5}), four.model.full_layers);
  EXPECT_EQ(16, four.model.window);
  EXPECT_EQ(QkNorm::Head, four.model.qk_norm);
  EXPECT_EQ(NormPlace::Both, four.model.norm_place);
  EXPECT_TRUE(four.model.norm_plus_one);
  EXPECT_DOUBLE_EQ(std::sqrt(32.0), four.model.embed_scale);
  EXPECT_DOUBLE_EQ(1 / 16.0, four.model.attention_scale);
  const HubConfig five = parse(small(
      "gemma3_text", {{"sliding_window", 16},
                      {"head_dim", 16},
                      {"rope_parameters",
                       {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
                        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}}}}));
  EXPECT_EQ(four.model, five.model);
}

TEST(ConfigJson, ReadsWhatEachFamilyHas) {
  const ModelConfig gemma2 = parse(small("gemma2", {{"head_dim", 16}, {"query_pre_attn_scalar", 16}})).model;
  EXPECT_DOUBLE_EQ(50, gemma2.attention_softcap);
  EXPECT_DOUBLE_EQ(30, gemma2.logit_softcap);
  EXPECT_DOUBLE_EQ(0, gemma2.attention_scale);
  EXPECT_EQ((std::vector<int64_t>{1, 3, 5}), gemma2.full_layers);
  EXPECT_EQ(GatedActivation::Gelu, gemma2.activation);
  const ModelConfig smol = parse(small("smollm3")).model;
  EXPECT_EQ((std::vector<int64_t>{3}), smol.no_rope_layers);
  EXPECT_EQ(0, smol.window);
  const ModelConfig olmo = parse(small("olmo3", {{"sliding_window", 8}})).model;
  EXPECT_EQ(NormPlace::After, olmo.norm_place);
  EXPECT_EQ(QkNorm::All, olmo.qk_norm);
  EXPECT_EQ((std::vector<int64_t>{3}), olmo.full_layers);
  EXPECT_DOUBLE_EQ(0, olmo.rope_local_theta);
  const ModelConfig granite = parse(small("granite", {{"embedding_multiplier", 12.0},
                                                      {"logits_scaling", 8.0},
                                                      {"residual_multiplier", 0.22},
                                                      {"attention_multiplier", 0.015625}}))
                                  .model;
  EXPECT_DOUBLE_EQ(12, granite.embed_scale);
  EXPECT_DOUBLE_EQ(0.125, granite.logit_scale);
  EXPECT_DOUBLE_EQ(0.015625, granite.attention_scale);
  const ModelConfig qwen2 =
      parse(small("qwen2", {{"use_sliding_window", true}, {"max_window_layers", 4}, {"sliding_window", 32}}))
          .model;
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.out_bias);
  EXPECT_EQ((std::vector<int64_t>{0, 1, 2, 3}), qwen2.full_layers);
  EXPECT_EQ(0, parse(small("qwen2", {{"use_sliding_window", false}, {"sliding_window", 32}})).model.window);
}

TEST(ConfigJson, RefusesWhatChangesTheForwardPass) {
  EXPECT_NE(std::string::npos, refusal({{"model_type", "mamba"}}).find("model_type = \"mamba\""));
  EXPECT_NE(std::string::npos, refusal({{"vocab_size", 3}}).find("has no model_type"));
  const std::pair<const char*, json> cases[] = {
      {"hidden_act", "relu"},
      {"pretraining_tp", 2},
      {"quantization_config", {{"bits", 4}}},
      {"num_experts", 8},
      {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}},
      {"use_qk_clip", true},
      {"hidden_size", "many"},
      {"num_attention_heads", 0},
      {"rope_scaling", {{"type", "linear"}}},
      {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"wobble", 3}}},
      {"vocab_size", -1},
      {"rope_interleaved", true},
      {"tie_word_embeddings", nullptr}};
  for (const auto& [key, value] : cases) {
    const std::string message = refusal(small("llama", {{key, value}}));
    EXPECT_TRUE(message.starts_with("config.json: ")) << message;
    if (key != std::string_view("vocab_size")) {
      EXPECT_NE(std::string::npos, message.find(key)) << message;
    }
  }
  EXPECT_NE(std::string::npos, refusal(small("gpt2", {{"scale_attn_by_inverse_layer_idx", true}}))
                                   .find("scale_attn_by_inverse_layer_idx"));
  EXPECT_NE(std::string::npos,
            refusal(small("qwen3", {{"layer_types", {"full_attention"}}})).find("layer_types"));
}

TEST(ConfigJson, UnknownKeysThatSayNothingAreNotMinded) {
  EXPECT_NO_THROW(parse(
      small("llama", {{"new_thing", nullptr}, {"other", false}, {"list", json::array()}, {"text", ""}})));
  EXPECT_NE(std::string::npos,
            refusal(small("llama", {{"new_thing", 1}})).find("new_thing = 1: not a key of llama"));
}

TEST(ConfigJson, DropoutIsToldAndNotDone) {
  const HubConfig config = parse(small("gpt2", {{"attn_pdrop", 0.1}, {"resid_pdrop", 0.0}}));
  ASSERT_EQ(1u, config.notes.size());
  EXPECT_NE(std::string::npos, config.notes[0].find("attn_pdrop is 0.1"));
}

// With every feature of its own.
std::vector<json> one_of_each() {
  return {
      small("gpt2"),
      small("llama", {{"attention_bias", true},
                      {"mlp_bias", true},
                      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}),
      small("mistral", {{"sliding_window", 16}, {"head_dim", 16}}),
      small("qwen2", {{"rope_scaling",
                       {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}}}}),
      small("qwen3", {{"head_dim", 16}, {"tie_word_embeddings", true}}),
      small("smollm3"),
      small("phi3", {{"original_max_position_embeddings", 64},
                     {"partial_rotary_factor", 0.5},
                     {"rope_scaling",
                      {{"type", "longrope"}, {"short_factor", {1.0, 1.5}}, {"long_factor", {2.0, 3.25}}}}}),
      small("olmo2"),
      small("olmo3", {{"sliding_window", 16},
                      {"rope_scaling",
                       {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 64}}}}),
      small("granite", {{"embedding_multiplier", 12.0},
                        {"logits_scaling", 3.0},
                        {"residual_multiplier", 0.22},
                        {"attention_multiplier", 0.2}}),
      small("gemma2", {{"head_dim", 16}, {"sliding_window", 16}}),
      small("gemma3_text", {{"head_dim", 16}, {"sliding_window", 16}, {"query_pre_attn_scalar", 7}})};
}

TEST(ConfigJson, WhatIsWrittenReadsAsTheSameModelInEitherVersion) {
  for (const json& object : one_of_each()) {
    const HubConfig config = parse(object);
    const json both = config_json(*config.family, config.model, config.positions, DType::BF16);
    json four = both, five = both;
    for (const char* key : {"rope_parameters", "dtype"}) four.erase(key);
    for (const char* key :
         {"rope_theta", "rope_scaling", "rope_local_base_freq", "torch_dtype", "partial_rotary_factor"})
      five.erase(key);
    for (const json& written : {both, four, five}) {
      const HubConfig read = parse(written);
      EXPECT_EQ("", first_difference(config.model, read.model)) << object << "\n" << written;
      EXPECT_EQ(DType::BF16, *read.dtype);
      EXPECT_EQ(config.positions, read.positions);
    }
  }
}

TEST(ConfigJson, AKeptFileGetsTheOtherSpelling) {
  for (const json& object : one_of_each()) {
    const HubConfig config = parse(object);
    nlohmann::ordered_json kept = object;
    add_both_spellings(kept, config, DType::F16);
    EXPECT_EQ("", first_difference(config.model, parse(kept).model)) << kept;
    if (config.family->family == Family::Llama) {
      EXPECT_TRUE(kept.contains("rope_theta") && kept.contains("rope_parameters"));
    }
    EXPECT_EQ("float16", kept.at("torch_dtype"));
  }
}

TEST(ConfigJson, AModelFindsTheFamilyThatHasAllOfIt) {
  for (const json& object : one_of_each()) {
    const HubConfig config = parse(object);
    EXPECT_EQ(config.family->model_type, family_of(config.model, "run").model_type);
  }
  ModelConfig own = parse(small("llama")).model;
  own.rope_scaling =
      "llama3:original_max_position_embeddings=32,low_freq_factor=1,high_freq_factor=4,factor=8";
  EXPECT_EQ("llama", family_of(own, "run").model_type) << "in whichever order its numbers are written";
  ModelConfig odd = parse(small("qwen3")).model;
  odd.logit_softcap = 5;
  EXPECT_NE(std::string::npos, message_of<ConfigError>([&] { family_of(odd, "run"); }).find("logit_softcap"));
}

TEST(ConfigJson, ANumberThatNoFamilyMayHaveIsNamed) {
  const auto refusal = [](const ModelConfig& model) {
    return message_of<ConfigError>([&] { family_of(model, "run"); });
  };
  ModelConfig partial = parse(small("qwen3")).model;
  partial.rope_dims = partial.head / 2;
  EXPECT_NE(std::string::npos, refusal(partial).find("has this model.rope_dims")) << refusal(partial);
  ModelConfig gpt2 = parse(small("gpt2")).model;
  gpt2.norm_eps = std::numeric_limits<double>::infinity();
  EXPECT_NE(std::string::npos, refusal(gpt2).find("has this model.norm_eps")) << refusal(gpt2);
}

}  // namespace
}  // namespace tandem::hub
