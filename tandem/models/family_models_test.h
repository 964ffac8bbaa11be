// A tiny model of each family that the llama builder makes, with every key that the family differs in at
// work.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tandem/config/config.h"

namespace tandem {

struct FamilyModel {
  std::string name;
  ModelConfig model;
};

inline void PrintTo(const FamilyModel& family, std::ostream* out) { *out << family.name; }

inline ModelConfig tiny_decoder() {
  ModelConfig config;
  config.family = Family::Llama;
  config.layers = 2;
  config.width = 16;
  config.heads = 4;
  config.kv_heads = 2;
  config.head = 4;
  config.context = 12;
  config.vocab = 40;
  config.ffn = 24;
  config.rope_theta = 100;
  config.tied = false;
  config.qkv_bias = false;
  return config;
}

inline ModelConfig tiny_gemma() {
  ModelConfig config = tiny_decoder();
  config.head = 6;
  config.tied = true;
  config.window = 5;
  config.full_layers = {1};
  config.attention_scale = 0.6;
  config.embed_scale = 4;
  config.norm_place = NormPlace::Both;
  config.norm_plus_one = true;
  config.activation = GatedActivation::Gelu;
  return config;
}

inline std::vector<FamilyModel> family_models() {
  ModelConfig llama = tiny_decoder(), mistral = llama, qwen2 = llama, qwen3 = llama, phi3 = llama,
              smollm3 = llama, olmo2 = llama, granite = llama, gemma2 = tiny_gemma(), gemma3 = gemma2;
  llama.rope_scaling =
      "llama3:factor=4,low_freq_factor=1,high_freq_factor=4,original_max_position_embeddings=32";
  llama.qkv_bias = llama.out_bias = llama.ffn_bias = true;
  mistral.window = 5;
  mistral.head = 6;
  qwen2.qkv_bias = true;
  qwen2.window = 3;
  qwen2.full_layers = {0};
  qwen3.qk_norm = QkNorm::Head;
  qwen3.head = 6;
  qwen3.rope_scaling = "yarn:factor=4,original_max_position_embeddings=8";
  gemma2.attention_softcap = 1.5;
  gemma2.logit_softcap = 2;
  gemma3.qk_norm = QkNorm::Head;
  gemma3.rope_local_theta = 20;
  gemma3.rope_scaling = "linear:factor=2";
  phi3.rope_dims = 2;
  phi3.rope_scaling = "longrope:short_factor=1.5,long_factor=2,original_max_position_embeddings=8,factor=2";
  smollm3.no_rope_layers = {1};
  smollm3.tied = true;
  olmo2.qk_norm = QkNorm::All;
  olmo2.norm_place = NormPlace::After;
  ModelConfig olmo3 = olmo2;
  olmo3.window = 5;
  olmo3.full_layers = {1};
  olmo3.rope_local_theta = 100;
  olmo3.rope_scaling = "yarn:factor=4,original_max_position_embeddings=8,attention_factor=1.2";
  granite.embed_scale = 3;
  granite.residual_scale = 0.5;
  granite.attention_scale = 0.2;
  granite.logit_scale = 0.25;
  return {{"llama", llama},   {"mistral", mistral}, {"qwen2", qwen2},    {"qwen3", qwen3},
          {"gemma2", gemma2}, {"gemma3", gemma3},   {"phi3", phi3},      {"smollm3", smollm3},
          {"olmo2", olmo2},   {"olmo3", olmo3},     {"granite", granite}};
}

}  // namespace tandem
