#include "tandem/hub/gguf_names.h"

#include <vector>

#include "tandem/base/error.h"

namespace tandem::hub {
namespace {

constexpr GgufArchitecture kArchitectures[] = {
    {"llama", "llama", 0, true, 0},          {"qwen2", "qwen2", 0, false, 0},
    {"qwen3", "qwen3", 0, false, 0},         {"gemma2", "gemma2", 2, false, 46},  // the 27B ones
    {"gemma3_text", "gemma3", 6, false, 62}, {"gpt2", "gpt2", 0, false, 0},
};

struct NamePair {
  std::string_view ours;
  std::vector<std::string_view> theirs;  // one for each part, or one for all
};

const std::vector<NamePair>& names_in_block() {
  static const std::vector<NamePair> kNames = {{"norm1", {"attn_norm"}},
                                               {"qkv", {"attn_q", "attn_k", "attn_v"}},
                                               {"q_norm", {"attn_q_norm"}},
                                               {"k_norm", {"attn_k_norm"}},
                                               {"out", {"attn_output"}},
                                               {"post_norm1", {"post_attention_norm"}},
                                               {"norm2", {"ffn_norm"}},
                                               {"gate_up", {"ffn_gate", "ffn_up"}},
                                               {"up", {"ffn_up"}},
                                               {"down", {"ffn_down"}},
                                               {"post_norm2", {"post_ffw_norm"}}};
  return kNames;
}

}  // namespace

const GgufArchitecture* gguf_architecture_of(std::string_view model_type) {
  for (const GgufArchitecture& known : kArchitectures) {
    if (known.model_type == model_type) return &known;
  }
  return nullptr;
}

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  for (const GgufArchitecture& known : kArchitectures) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

std::string gguf_name(const std::string& param, size_t part, size_t num_parts) {
  const std::string suffix = param.substr(param.rfind('.'));
  const std::string stem = param.substr(0, param.size() - suffix.size());
  if (stem == "embed") return "token_embd" + suffix;
  if (stem == "pos") return "position_embd" + suffix;
  if (stem == "norm") return "output_norm" + suffix;
  if (stem == "head") return "output" + suffix;
  const size_t dot = stem.rfind('.');
  const std::string block = stem.substr(7, dot - 7), own = stem.substr(dot + 1);
  for (const NamePair& pair : names_in_block()) {
    if (pair.ours != own) continue;
    const std::string_view name =
        pair.theirs.size() == num_parts ? pair.theirs[part] : std::string_view("attn_qkv");
    return fmt::format("blk.{}.{}{}", block, name, suffix);
  }
  TANDEM_CHECK(false, "parameter '{}' has no name in GGUF", param);
  return {};
}

}  // namespace tandem::hub
