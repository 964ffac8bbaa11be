#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/config/keys.h"
#include "tandem/hub/config_json.h"
#include "tandem/hub/hub_dtype.h"
#include "tandem/hub/rope_json.h"

namespace tandem::hub {
namespace {

using nlohmann::ordered_json;

ordered_json or_null(double value) { return value == 0 ? ordered_json(nullptr) : ordered_json(value); }

void write_gpt2(ordered_json& json, const ModelConfig& model, int64_t positions) {
  json["vocab_size"] = model.vocab;
  json["n_positions"] = positions;
  json["n_ctx"] = positions;
  json["n_embd"] = model.width;
  json["n_layer"] = model.layers;
  json["n_head"] = model.heads;
  json["n_inner"] = model.ffn_width();
  json["activation_function"] = "gelu_new";
  json["layer_norm_epsilon"] = model.norm_eps;
  for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) json[key] = 0.0;
}

bool is_full(const ModelConfig& model, int64_t layer) {
  return model.window == 0 ||
         std::find(model.full_layers.begin(), model.full_layers.end(), layer) != model.full_layers.end();
}

void write_windows(ordered_json& json, const HubFamily& family, const ModelConfig& model) {
  if (family.has(kNoRopeLayers)) {
    std::vector<int> list(static_cast<size_t>(model.layers), 1);
    for (int64_t layer : model.no_rope_layers) list[static_cast<size_t>(layer)] = 0;
    json["no_rope_layers"] = list;
  }
  if (!family.has(kWindowEverywhere | kWindowSwitch | kWindowPattern)) return;
  json["sliding_window"] = model.window == 0 ? ordered_json(nullptr) : ordered_json(model.window);
  if (family.has(kWindowSwitch)) json["use_sliding_window"] = model.window != 0;
  if (!family.has(kLayerTypes)) return;
  ordered_json types = ordered_json::array();
  for (int64_t layer = 0; layer < model.layers; ++layer)
    types.push_back(is_full(model, layer) ? "full_attention" : "sliding_attention");
  json["layer_types"] = types;
}

void write_scales(ordered_json& json, const HubFamily& family, const ModelConfig& model) {
  if (family.has(kGemma)) {
    json["query_pre_attn_scalar"] = model.attention_scale == 0
                                        ? ordered_json(model.head_width())
                                        : ordered_json(1 / (model.attention_scale * model.attention_scale));
    json["attn_logit_softcapping"] = or_null(model.attention_softcap);
    json["final_logit_softcapping"] = or_null(model.logit_softcap);
  }
  if (family.has(kMultipliers)) {
    json["embedding_multiplier"] = model.embed_scale;
    json["residual_multiplier"] = model.residual_scale;
    json["attention_multiplier"] = model.attention_scale == 0
                                       ? 1 / std::sqrt(static_cast<double>(model.head_width()))
                                       : model.attention_scale;
    json["logits_scaling"] = 1 / model.logit_scale;
  }
}

RopeNumbers rope_of(const ModelConfig& model) {
  const auto head = static_cast<double>(model.head_width());
  return {model.rope_theta, model.rope_scaling, model.rope_local_theta,
          model.rope_dims == 0 ? 1.0 : static_cast<double>(model.rope_dims) / head};
}

void write_rotary(ordered_json& json, const HubFamily& family, const ModelConfig& model, int64_t positions) {
  json["vocab_size"] = model.vocab;
  json["hidden_size"] = model.width;
  json["intermediate_size"] = model.ffn_width();
  json["num_hidden_layers"] = model.layers;
  json["num_attention_heads"] = model.heads;
  json["num_key_value_heads"] = model.num_kv_heads();
  json["head_dim"] = model.head_width();
  json["max_position_embeddings"] = positions;
  json["rms_norm_eps"] = model.norm_eps;
  json[family.has(kGemma) ? "hidden_activation" : "hidden_act"] =
      model.activation == GatedActivation::Silu ? "silu" : "gelu_pytorch_tanh";
  if (family.has(kAttentionBias)) json["attention_bias"] = model.out_bias;
  if (family.has(kMlpBias)) json["mlp_bias"] = model.ffn_bias;
  write_rope(json, family, rope_of(model));
  write_windows(json, family, model);
  write_scales(json, family, model);
}

void write_dtype(ordered_json& json, DType dtype) { json["torch_dtype"] = json["dtype"] = torch_name(dtype); }

bool is_near(double a, double b) { return std::fabs(a - b) <= 1e-12 * std::max(std::fabs(a), std::fabs(b)); }

// A user may write the numbers of model.rope_scaling in any order.
std::string in_order(const std::string& scaling) {
  const size_t colon = scaling.find(':');
  if (colon == std::string::npos) return scaling;
  std::vector<std::string> parts;
  for (size_t at = colon + 1; at <= scaling.size();) {
    const size_t end = std::min(scaling.find(',', at), scaling.size());
    parts.push_back(scaling.substr(at, end - at));
    at = end + 1;
  }
  std::sort(parts.begin(), parts.end());
  return fmt::format("{}:{}", scaling.substr(0, colon), fmt::join(parts, ","));
}

// A model that was never loaded has zeros where derived values go.
ModelConfig settled(ModelConfig model) {
  model.kv_heads = model.num_kv_heads();
  model.rope_scaling = in_order(model.rope_scaling);
  model.head = model.head_width();
  model.ffn = model.ffn_width();
  if (model.has(kRotary) && model.rope_dims == 0) model.rope_dims = model.head;
  if (model.window == 0) model.rope_local_theta = 0;
  const double usual = 1 / std::sqrt(static_cast<double>(model.head));
  if (is_near(model.attention_scale, usual)) model.attention_scale = 0;
  return model;
}

std::optional<ModelConfig> written_and_read(const HubFamily& family, const ModelConfig& model) {
  const std::string text = config_json(family, model, model.context, DType::F32).dump();
  try {
    return parse_config_json(text, "config.json").model;
  } catch (const ConfigError&) {  // a number that this family may not have
    return std::nullopt;
  }
}

// The key without whose value, with its usual one instead, a family can have the model: it is out of range.
std::string out_of_range(const HubFamily& family, const ModelConfig& model) {
  Config usual;
  usual.model.family = model.family;
  for (const Key& key : keys()) {
    if (!key.path.starts_with("model.") || !applies(key, model.family)) continue;
    Config other;
    other.model = model;
    const nlohmann::json value = key.read(usual);
    if (value == key.read(other) || value.is_array()) continue;
    const RawValue raw{{value.is_string() ? value.get<std::string>() : value.dump()}, false};
    if (!key.write(other, raw, key.limits) && written_and_read(family, other.model))
      return std::string(key.path);
  }
  return "model.family";
}

// The key that does not survive a family's config.json.
std::string lost_in(const HubFamily& family, const ModelConfig& model) {
  const std::optional<ModelConfig> read = written_and_read(family, model);
  return read ? first_difference(model, *read) : out_of_range(family, model);
}

}  // namespace

nlohmann::ordered_json config_json(const HubFamily& family, const ModelConfig& model, int64_t positions,
                                   DType dtype) {
  ordered_json json;
  json["architectures"] = {family.architecture};
  json["model_type"] = family.model_type;
  if (model.has(kRotary)) {
    write_rotary(json, family, model, positions);
  } else {
    write_gpt2(json, model, positions);
  }
  json["tie_word_embeddings"] = model.tied;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) json[key] = nullptr;
  json["use_cache"] = true;
  write_dtype(json, dtype);
  return json;
}

void add_both_spellings(ordered_json& json, const HubConfig& config, DType dtype) {
  write_dtype(json, dtype);
  if (!config.model.has(kRotary)) return;
  ordered_json rope;
  RopeNumbers numbers = rope_of(config.model);
  write_rope(rope, *config.family, numbers);
  for (const auto& [key, value] : rope.items()) {
    if (!json.contains(key) || (json[key].is_null() && !value.is_null())) json[key] = value;
  }
}

std::string first_difference(const ModelConfig& first, const ModelConfig& second) {
  Config a, b;
  a.model = settled(first);
  b.model = settled(second);
  for (const Key& key : keys()) {
    if (!key.path.starts_with("model.") || !applies(key, a.model.family)) continue;
    if (key.path == "model.from" || key.path == "model.init" || key.path == "model.context") continue;
    if (key.path == "model.dropout") continue;  // of training alone
    const nlohmann::json left = key.read(a), right = key.read(b);
    if (left == right) continue;
    if (left.is_number_float() && right.is_number_float() && is_near(left.get<double>(), right.get<double>()))
      continue;
    return std::string(key.path);
  }
  return "";
}

const HubFamily& family_of(const ModelConfig& model, const std::string& origin) {
  std::string key = "model.family";
  for (const HubFamily& family : hub_families()) {
    if (family.family != model.family) continue;
    const std::string differs = lost_in(family, model);
    if (differs.empty()) return family;
    if (key == "model.family") key = differs;  // of the plainest
  }
  throw ConfigError(
      "{}: no family of Hugging Face's that is known here has this {}; export needs one that has it", origin,
      key);
}

}  // namespace tandem::hub
