#include "tandem/hub/config_json.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/utf8.h"
#include "tandem/config/keys.h"
#include "tandem/hub/hub_dtype.h"
#include "tandem/hub/json_keys.h"
#include "tandem/hub/rope_json.h"
#include "tandem/hub/strict_json.h"

namespace tandem::hub {
namespace {

constexpr int64_t kMostConfigBytes = 4 << 20;

// Keys that change nothing in the forward pass: where the file comes from, what tokens mean, how text is
// generated, how weights were once drawn, how a program holds its caches.
constexpr std::string_view kHarmless[] = {
    "model_type",
    "architectures",
    "auto_map",
    "transformers_version",
    "_name_or_path",
    "name_or_path",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_sliding_window_pattern",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "unk_token_id",
    "sep_token_id",
    "cls_token_id",
    "mask_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "use_cache",
    "cache_implementation",
    "initializer_range",
    "tokenizer_class",
    "return_dict",
    "return_dict_in_generate",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "is_decoder",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "task_specific_params",
    "finetuning_task",
    "prefix",
    "torchscript",
    "use_bfloat16",
    "tf_legacy_loss",
    "max_length",
    "min_length",
    "max_new_tokens",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "num_return_sequences",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
    "bad_words_ids",
    "gradient_checkpointing",
    "is_llama_config",
    "transformers.js_config",
    "unsloth_version",
    "unsloth_fixed",
    "torch_dtype",
    "dtype",
    "chunk_size_feed_forward",
    "is_encoder_decoder",
    "cross_attention_hidden_size",
    "tie_encoder_decoder",
};

constexpr std::string_view kDropouts[] = {"attention_dropout", "resid_pdrop",    "embd_pdrop",
                                          "attn_pdrop",        "hidden_dropout", "dropout"};

class ConfigReader {
 public:
  ConfigReader(HubConfig& out, const std::string& origin)
      : out_(out), family_(*out.family), model_(out.model), keys_(out.json, origin) {}

  void read() {
    for (std::string_view key : kHarmless) keys_.ignore(key);
    read_dtype();
    read_dropouts();
    keys_.require("quantization_config", nullptr,
                  "quantized weights cannot be trained; take the directory that they were made from");
    keys_.require("pruned_heads", nlohmann::json::object(), "heads that were cut off cannot be built");
    model_.family = family_.family;
    model_.tied = keys_.flag("tie_word_embeddings", family_.tied);
    if (model_.has(kRotary)) {
      read_rotary();
    } else {
      read_gpt2();
    }
    if (const auto key = keys_.first_unread())
      keys_.refuse(*key,
                   fmt::format("not a key of {} that is known here; it may change what the model computes",
                               family_.model_type));
    model_.context = std::min(out_.positions, kUsualContext);
    check_limits();
  }

 private:
  void read_dtype() {
    for (const char* key : {"dtype", "torch_dtype"}) {
      const nlohmann::json* value = keys_.find(key);
      if (value == nullptr || !value->is_string() || out_.dtype) continue;
      out_.dtype = parse_torch_dtype(value->get_ref<const std::string&>());
    }
  }

  void read_dropouts() {
    for (std::string_view key : kDropouts) {
      const double rate = keys_.real_or_none(key, 0.0).value_or(0);
      if (rate != 0)
        out_.notes.push_back(
            fmt::format("{}: {} is {}; training goes without dropout", keys_.origin(), key, rate));
    }
  }

  void read_gpt2() {
    model_.vocab = keys_.integer("vocab_size", family_.vocab);
    model_.width = keys_.integer("n_embd", family_.width);
    model_.layers = keys_.integer("n_layer", family_.layers);
    model_.heads = keys_.integer("n_head", family_.heads);
    out_.positions = keys_.integer("n_positions", family_.positions);
    keys_.ignore("n_ctx");
    model_.ffn = keys_.integer_or_none("n_inner", std::nullopt).value_or(4 * model_.width);
    model_.norm_eps = keys_.real("layer_norm_epsilon", family_.eps);
    model_.kv_heads = model_.heads;
    check_heads();
    model_.head = model_.width / model_.heads;
    const std::string act = keys_.text("activation_function", "gelu_new");
    if (act != "gelu_new" && act != "gelu_pytorch_tanh")
      keys_.refuse("activation_function", "only gelu_new can be built");
    keys_.require("scale_attn_weights", true, "unscaled attention cannot be built");
    keys_.require("scale_attn_by_inverse_layer_idx", false, "scores scaled by the layer cannot be built");
    keys_.require("add_cross_attention", false, "attention to another model cannot be built");
    keys_.ignore("reorder_and_upcast_attn");  // the same function in other steps
    for (const char* key : {"summary_type", "summary_use_proj", "summary_activation",
                            "summary_proj_to_labels", "summary_first_dropout"})
      keys_.ignore(key);  // of a classifier's head
  }

  void check_heads() {
    if (model_.heads < 1)
      keys_.refuse(model_.has(kRotary) ? "num_attention_heads" : "n_head", "expected 1 or more");
    if (model_.layers < 1 || model_.layers > 100'000)
      keys_.refuse(model_.has(kRotary) ? "num_hidden_layers" : "n_layer", "expected 1 to 100000 layers");
  }

  void read_rotary() {
    model_.vocab = keys_.integer("vocab_size", family_.vocab);
    model_.width = keys_.integer("hidden_size", family_.width);
    model_.ffn = keys_.integer("intermediate_size", family_.ffn);
    model_.layers = keys_.integer("num_hidden_layers", family_.layers);
    model_.heads = keys_.integer("num_attention_heads", family_.heads);
    check_heads();
    const int64_t kv_heads = family_.kv_heads == 0 ? model_.heads : family_.kv_heads;
    model_.kv_heads = keys_.integer_or_none("num_key_value_heads", kv_heads).value_or(model_.heads);
    const int64_t head = family_.head == 0 ? model_.width / model_.heads : family_.head;
    model_.head = keys_.integer_or_none("head_dim", head).value_or(model_.width / model_.heads);
    out_.positions = keys_.integer("max_position_embeddings", family_.positions);
    model_.norm_eps = keys_.real("rms_norm_eps", family_.eps);
    keys_.require("pretraining_tp", 1, "sums in the order of another number of devices cannot be built");
    keys_.require("rope_interleaved", false, "interleaved rotary positions cannot be built");
    keys_.require("is_causal", true, "only causal attention can be built");
    read_features();
    read_biases();
    read_windows();
    read_rope_keys();
    read_scales();
  }

  void read_features() {
    model_.qk_norm = family_.has(kHeadNorm)  ? QkNorm::Head
                     : family_.has(kAllNorm) ? QkNorm::All
                                             : QkNorm::None;
    model_.norm_place = family_.has(kNormsAfter)  ? NormPlace::After
                        : family_.has(kNormsBoth) ? NormPlace::Both
                                                  : NormPlace::Before;
    model_.norm_plus_one = family_.has(kGemma);
    const char* key = family_.has(kGemma) ? "hidden_activation" : "hidden_act";
    if (family_.has(kGemma)) keys_.ignore("hidden_act");  // of the first Gemma; nobody reads it
    const char* usual = family_.has(kGemma) ? "gelu_pytorch_tanh" : "silu";
    const std::string act = keys_.is_null(key) ? usual : keys_.text(key, usual);
    if (act == "silu" || act == "swish") {
      model_.activation = GatedActivation::Silu;
    } else if (act == "gelu_pytorch_tanh" || act == "gelu_new") {
      model_.activation = GatedActivation::Gelu;
    } else {
      keys_.refuse(key, "only silu and gelu_pytorch_tanh can be built");
    }
    if (family_.has(kGemma))
      keys_.require("use_bidirectional_attention", false, "only causal attention can be built");
  }

  void read_biases() {
    const bool all = family_.has(kAttentionBias) && keys_.flag("attention_bias", false);
    model_.qkv_bias = all || family_.has(kQkvBias);
    model_.out_bias = all;
    model_.ffn_bias = family_.has(kMlpBias) && keys_.flag("mlp_bias", false);
  }

  // Which layers have the window, as layer_types says or as the family has it.
  std::vector<bool> windowed_layers() {
    const auto layers = static_cast<size_t>(model_.layers);
    std::vector<bool> windowed(layers, family_.has(kWindowEverywhere));
    const auto types = family_.has(kLayerTypes) ? keys_.texts("layer_types") : std::nullopt;
    const int64_t pattern =
        family_.has(kWindowPattern) ? keys_.integer("sliding_window_pattern", family_.pattern) : 0;
    const int64_t first = family_.has(kWindowSwitch) ? keys_.integer("max_window_layers", 28) : 0;
    if (types) {
      if (types->size() != layers)
        keys_.refuse("layer_types", fmt::format("expected {} of them, one a layer", layers));
      for (size_t i = 0; i < layers; ++i) {
        const std::string& type = (*types)[i];
        if (type != "full_attention" && type != "sliding_attention")
          keys_.refuse("layer_types",
                       fmt::format("'{}' cannot be built; expected full_attention or sliding_attention",
                                   printable(type)));
        windowed[i] = type == "sliding_attention";
      }
    } else if (family_.has(kWindowPattern)) {
      if (pattern < 1) keys_.refuse("sliding_window_pattern", "expected 1 or more");
      for (size_t i = 0; i < layers; ++i) windowed[i] = (static_cast<int64_t>(i) + 1) % pattern != 0;
    } else if (family_.has(kNoRopeLayers)) {
      for (int64_t layer : model_.no_rope_layers) windowed[static_cast<size_t>(layer)] = true;
    } else if (family_.has(kWindowSwitch)) {
      for (size_t i = 0; i < layers; ++i) windowed[i] = static_cast<int64_t>(i) >= first;
    }
    return windowed;
  }

  void read_windows() {
    read_no_rope();
    const bool switched = !family_.has(kWindowSwitch) || keys_.flag("use_sliding_window", false);
    const bool has_key = family_.has(kWindowSwitch | kWindowPattern | kWindowEverywhere);
    const std::optional<int64_t> usual = family_.window == 0 ? std::nullopt : std::optional(family_.window);
    const int64_t window = has_key ? keys_.integer_or_none("sliding_window", usual).value_or(0) : 0;
    const std::vector<bool> windowed = windowed_layers();
    const bool any = std::find(windowed.begin(), windowed.end(), true) != windowed.end();
    if (!switched || window == 0 || !any) return;
    if (window < 0) keys_.refuse("sliding_window", "expected 1 or more, or null");
    model_.window = window;
    for (size_t i = 0; i < windowed.size(); ++i) {
      if (!windowed[i]) model_.full_layers.push_back(static_cast<int64_t>(i));
    }
  }

  // There 1 stands for a layer with positions, 0 for one without.
  void read_no_rope() {
    if (!family_.has(kNoRopeLayers)) return;
    const int64_t interval = keys_.integer("no_rope_layer_interval", 4);
    const auto list = keys_.reals("no_rope_layers");
    if (list && static_cast<int64_t>(list->size()) != model_.layers)
      keys_.refuse("no_rope_layers", fmt::format("expected {} numbers, one a layer", model_.layers));
    if (interval < 1) keys_.refuse("no_rope_layer_interval", "expected 1 or more");
    for (int64_t i = 0; i < model_.layers; ++i) {
      const bool has_rope = list ? (*list)[static_cast<size_t>(i)] != 0 : (i + 1) % interval != 0;
      if (!has_rope) model_.no_rope_layers.push_back(i);
    }
  }

  void read_rope_keys() {
    const RopeNumbers rope = read_rope(keys_, family_, out_.positions);
    model_.rope_theta = rope.theta;
    model_.rope_scaling = rope.scaling;
    model_.rope_local_theta = model_.window == 0 ? 0 : rope.local_theta;
    model_.rope_dims = static_cast<int64_t>(static_cast<double>(model_.head) * rope.partial);
  }

  void read_scales() {
    if (family_.has(kGemma)) {
      const double scalar = keys_.real("query_pre_attn_scalar", 256);
      if (scalar <= 0) keys_.refuse("query_pre_attn_scalar", "expected more than 0");
      if (scalar != static_cast<double>(model_.head)) model_.attention_scale = 1 / std::sqrt(scalar);
      const bool caps = family_.local_theta == 0;  // gemma2; gemma3 dropped them
      model_.attention_softcap =
          keys_.real_or_none("attn_logit_softcapping", caps ? std::optional(50.0) : std::nullopt).value_or(0);
      model_.logit_softcap =
          keys_.real_or_none("final_logit_softcapping", caps ? std::optional(30.0) : std::nullopt)
              .value_or(0);
      model_.embed_scale = std::sqrt(static_cast<double>(model_.width));
    }
    if (family_.has(kMultipliers)) {
      model_.embed_scale = keys_.real("embedding_multiplier", 1);
      model_.residual_scale = keys_.real("residual_multiplier", 1);
      model_.attention_scale = keys_.real("attention_multiplier", 1);
      const double divisor = keys_.real("logits_scaling", 1);
      if (divisor <= 0) keys_.refuse("logits_scaling", "expected more than 0");
      model_.logit_scale = 1 / divisor;
    }
  }

  // By the same limits as a config's own values.
  void check_limits() {
    if (out_.positions < 1)
      keys_.refuse(model_.has(kRotary) ? "max_position_embeddings" : "n_positions", "expected 1 or more");
    Config config;
    config.model = model_;
    for (const Key& key : tandem::keys()) {
      if (!key.path.starts_with("model.") || !applies(key, model_.family)) continue;
      const nlohmann::json value = key.read(config);
      RawValue raw{{}, value.is_array()};
      const auto text = [](const nlohmann::json& item) {
        return item.is_string() ? item.get<std::string>() : item.dump();
      };
      if (value.is_array()) {
        for (const nlohmann::json& item : value) raw.items.push_back(text(item));
      } else {
        raw.items.push_back(text(value));
      }
      if (const Problem problem = key.write(config, raw, key.limits))
        throw ConfigError("{}: {}: {}", keys_.origin(), key.path, *problem);
    }
  }

  HubConfig& out_;
  const HubFamily& family_;
  ModelConfig& model_;
  JsonKeys keys_;
};

std::string known_types() {
  std::string list;
  for (const HubFamily& family : hub_families())
    list += fmt::format("{}{}", list.empty() ? "" : ", ", family.model_type);
  return list;
}

}  // namespace

HubConfig parse_config_json(std::string_view text, const std::string& origin) {
  HubConfig out;
  out.json = parse_strictly(text, origin);
  JsonKeys keys(out.json, origin);
  const std::string type = keys.text("model_type", "");
  if (type.empty()) throw ConfigError("{}: has no model_type; expected one of {}", origin, known_types());
  out.family = find_family(type);
  if (out.family == nullptr) keys.refuse("model_type", fmt::format("this version builds {}", known_types()));
  ConfigReader(out, origin).read();
  return out;
}

HubConfig read_config_json(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "config.json";
  if (!is_there(directory)) throw ConfigError("{}: no such directory", directory.string());
  if (!is_there(file))
    throw ConfigError("{}: holds no config.json; expected a Hugging Face model's directory",
                      directory.string());
  return parse_config_json(read_text(file, kMostConfigBytes), file.string());
}

}  // namespace tandem::hub
