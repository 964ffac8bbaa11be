#include "tandem/hub/gguf_model.h"

#include <set>

#include "tandem/base/error.h"
#include "tandem/base/utf8.h"
#include "tandem/hub/gguf_names.h"
#include "tandem/hub/tensor_names.h"

namespace tandem::hub {
namespace {

using nlohmann::json;

constexpr std::string_view kRope = "rope_";  // rope_freqs.weight, rope_factors_long.weight

class ModelOfKeys {
 public:
  ModelOfKeys(const GgufContents& file, const GgufArchitecture& architecture, const std::string& origin)
      : file_(file), architecture_(architecture), origin_(origin) {
    for (const GgufTensorInfo& tensor : file.tensors) shapes_.emplace(tensor.name, &tensor.shape);
  }

  std::variant<HubConfig, std::string> read() {
    if (key("expert_count").value_or(0) > 0) return std::string("experts");
    if (file_.integer("split.count").value_or(1) > 1) return std::string("one part of several files");
    const std::string kind = file_.text("general.type").value_or("model");
    if (kind != "model") return fmt::format("general.type '{}'", printable(kind));
    if (file_.length(name("attention.head_count")) || file_.length(name("attention.head_count_kv")) ||
        file_.length(name("feed_forward_length")))
      return std::string("layers that differ in size");
    // Each layer has tensors: no more layers than those are worth a list of their names.
    if (need("block_count") > static_cast<int64_t>(file_.tensors.size()))
      throw DataError("{}: {} is {}, but the file has {} tensors", origin_, name("block_count"),
                      need("block_count"), file_.tensors.size());
    HubConfig config = parse();
    return check(config) ? std::variant<HubConfig, std::string>(std::move(config))
                         : std::variant<HubConfig, std::string>("tensor " + more_);
  }

 private:
  std::string name(std::string_view key) const { return fmt::format("{}.{}", architecture_.name, key); }
  std::optional<int64_t> key(std::string_view own) const { return file_.integer(name(own)); }
  int64_t need(std::string_view own) const {
    if (const auto value = key(own)) return *value;
    throw DataError("{}: has no whole number {}", origin_, name(own));
  }
  bool has(const std::string& tensor) const { return shapes_.contains(tensor); }

  int64_t vocab() const {
    if (const auto tokens = file_.length("tokenizer.ggml.tokens")) return static_cast<int64_t>(*tokens);
    return need("vocab_size");
  }

  HubConfig parse() const {
    json model = {{"model_type", architecture_.model_type},
                  {"vocab_size", vocab()},
                  {"tie_word_embeddings", !has("output.weight")}};
    const bool gpt2 = architecture_.model_type == "gpt2";
    model[gpt2 ? "n_embd" : "hidden_size"] = need("embedding_length");
    model[gpt2 ? "n_layer" : "num_hidden_layers"] = need("block_count");
    model[gpt2 ? "n_head" : "num_attention_heads"] = need("attention.head_count");
    model[gpt2 ? "n_inner" : "intermediate_size"] = need("feed_forward_length");
    model[gpt2 ? "n_positions" : "max_position_embeddings"] = need("context_length");
    if (!gpt2) {
      const int64_t heads = need("attention.head_count");
      model["num_key_value_heads"] = key("attention.head_count_kv").value_or(heads);
      if (const auto head = key("attention.key_length")) {
        model["head_dim"] = *head;
      } else if (heads > 0) {
        model["head_dim"] = need("embedding_length") / heads;
      }
      if (architecture_.model_type == "llama" || architecture_.model_type == "qwen3")
        model["attention_bias"] = has("blk.0.attn_q.bias");
      if (architecture_.model_type == "llama") model["mlp_bias"] = has("blk.0.ffn_up.bias");
      if (const auto window = key("attention.sliding_window"); window && architecture_.window_period != 0)
        model["sliding_window"] = *window;
    }
    try {
      return parse_config_json(model.dump(), origin_);
    } catch (const ConfigError& error) {
      throw DataError("{}", error.what());
    }
  }

  // Throws where a tensor is missing or has another shape; false where there is one more.
  bool check(const HubConfig& config) {
    std::set<std::string> known;
    for (const ParamSources& param : param_sources(*config.family, config.model, "")) {
      for (size_t i = 0; i < param.parts.size(); ++i) {
        const int64_t rows = param.parts[i].rows;
        const Shape shape = param.shape.rank() == 1 ? Shape{rows} : Shape{rows, param.shape[1]};
        const std::string tensor = gguf_name(param.name, i, param.parts.size());
        known.insert(tensor);
        const auto found = shapes_.find(tensor);
        if (found == shapes_.end())
          throw DataError("{}: has no tensor '{}' ({}), which its keys ask for", origin_, tensor,
                          to_string(shape));
        // A plan is for a shorter sequence than a model with very many positions could take.
        const bool positions = param.name == "pos.weight" && found->second->rank() == 2 &&
                               (*found->second)[0] == config.positions && (*found->second)[1] == shape[1];
        if (*found->second != shape && !positions)
          throw DataError("{}: tensor '{}': expected {} from its keys, found {}", origin_, tensor,
                          to_string(shape), to_string(*found->second));
      }
    }
    for (const auto& [tensor, shape] : shapes_) {
      if (known.contains(tensor) || tensor.starts_with(kRope)) continue;
      more_ = printable(tensor);
      return false;
    }
    return true;
  }

  const GgufContents& file_;
  const GgufArchitecture& architecture_;
  const std::string& origin_;
  std::map<std::string, const Shape*> shapes_;
  std::string more_;
};

}  // namespace

std::variant<HubConfig, std::string> gguf_model(const GgufContents& file, const std::string& origin) {
  const auto name = file.text("general.architecture");
  if (!name) throw DataError("{}: has no text general.architecture", origin);
  const GgufArchitecture* architecture = find_gguf_architecture(*name);
  if (architecture == nullptr) return fmt::format("architecture '{}'", printable(*name));
  return ModelOfKeys(file, *architecture, origin).read();
}

int64_t gguf_parameters(const GgufContents& file) {
  int64_t elems = 0;
  for (const GgufTensorInfo& tensor : file.tensors) {
    if (!tensor.name.starts_with(kRope)) elems += tensor.shape.elems();
  }
  return elems;
}

}  // namespace tandem::hub
