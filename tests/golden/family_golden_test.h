// What transformers gave for one family (make_families.py): its weights by our names, and what to compare
// with.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/error.h"

namespace tandem {

using NamedTensors = std::map<std::string, std::vector<float>>;

// All tensors of a safetensors file of fp32.
inline NamedTensors read_tensors(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), 8);
  std::string header(header_bytes, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  TANDEM_CHECK(file.good(), "{}", path.string());
  NamedTensors tensors;
  const nlohmann::json entries = nlohmann::json::parse(header);
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") continue;
    TANDEM_CHECK(entry["dtype"] == "F32", "{}: {}", path.string(), name);
    const uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    std::vector<float>& values = tensors[name];
    values.resize((end - begin) / 4);
    file.seekg(static_cast<std::streamoff>(8 + header_bytes + begin));
    file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(end - begin));
    TANDEM_CHECK(file.good(), "{}: {}", path.string(), name);
  }
  return tensors;
}

// Values by our names, from tensors by the names of transformers. `two_norms`: a block has norms before and
// after each of its halves.
class ByOurNames {
 public:
  ByOurNames(NamedTensors tensors, bool two_norms) : tensors_(std::move(tensors)), two_norms_(two_norms) {}

  // Of a parameter of ours; nothing where transformers' model has none.
  std::optional<std::vector<float>> of(const std::string& name) const {
    for (const auto& sources : sources_of(name)) {
      std::vector<float> values;
      bool found = true;
      for (const std::string& source : sources) {
        const auto it = tensors_.find(source);
        found = found && it != tensors_.end();
        if (found) values.insert(values.end(), it->second.begin(), it->second.end());
      }
      if (found) return values;
    }
    return std::nullopt;
  }

 private:
  using Sources =
      std::vector<std::vector<std::string>>;  // one list or another, its tensors one below the next

  Sources sources_of(const std::string& name) const {
    if (name == "embed.weight") return {{"model.embed_tokens.weight"}};
    if (name == "norm.weight") return {{"model.norm.weight"}};
    if (name == "head.weight") return {{"lm_head.weight"}};
    const size_t layer_end = name.find('.', 7), kind_begin = name.rfind('.');
    const std::string prefix = "model.layers." + name.substr(7, layer_end - 7) + ".";
    const std::string module = name.substr(layer_end + 1, kind_begin - layer_end - 1),
                      kind = name.substr(kind_begin);
    const auto at = [&](const std::string& path) { return prefix + path + kind; };
    if (module == "qkv") {
      return {{at("self_attn.q_proj"), at("self_attn.k_proj"), at("self_attn.v_proj")},
              {at("self_attn.qkv_proj")}};
    }
    if (module == "gate_up") return {{at("mlp.gate_proj"), at("mlp.up_proj")}, {at("mlp.gate_up_proj")}};
    static const std::map<std::string, std::string> kOthers = {
        {"out", "self_attn.o_proj"},
        {"down", "mlp.down_proj"},
        {"q_norm", "self_attn.q_norm"},
        {"k_norm", "self_attn.k_norm"},
        {"norm1", "input_layernorm"},
        {"post_norm1", "post_attention_layernorm"},
        {"post_norm2", "post_feedforward_layernorm"},
    };
    if (module == "norm2")
      return {{at(two_norms_ ? "pre_feedforward_layernorm" : "post_attention_layernorm")}};
    return {{at(kOthers.at(module))}};
  }

  NamedTensors tensors_;
  bool two_norms_;
};

struct FamilyGolden {
  explicit FamilyGolden(const std::filesystem::path& folder)
      : record(nlohmann::json::parse(std::ifstream(folder / "golden.json"))),
        weights(read_tensors(folder / "model.safetensors"), two_norms()),
        gradients(strip(read_tensors(folder / "golden.safetensors"), "grad."), two_norms()),
        logits(read_tensors(folder / "golden.safetensors").at("logits")) {}

  bool two_norms() const { return record["model"].value("norm_place", "before") == "both"; }
  std::vector<int32_t> flat(const char* name) const {
    std::vector<int32_t> values;
    for (const nlohmann::json& row : record[name]) {
      for (const nlohmann::json& value : row) values.push_back(value.get<int32_t>());
    }
    return values;
  }

  nlohmann::json record;
  ByOurNames weights, gradients;
  std::vector<float> logits;

 private:
  static NamedTensors strip(NamedTensors tensors, const std::string& prefix) {
    NamedTensors stripped;
    for (auto& [name, values] : tensors) {
      if (name.starts_with(prefix)) stripped[name.substr(prefix.size())] = std::move(values);
    }
    return stripped;
  }
};

}  // namespace tandem
