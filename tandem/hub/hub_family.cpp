#include "tandem/hub/hub_family.h"

namespace tandem::hub {
namespace {

constexpr Family kGpt2 = Family::Gpt2, kLlama = Family::Llama;

// clang-format off
constexpr HubFamily kHubFamilies[] = {
    {"gpt2", "GPT2LMHeadModel", kGpt2, kQkvBias,
     50257, 768, 0, 12, 12, 0, 0, 1024, 1e-5, 10000, 0, 0, 0, true},
    {"llama", "LlamaForCausalLM", kLlama, kAttentionBias | kMlpBias,
     32000, 4096, 11008, 32, 32, 0, 0, 2048, 1e-6, 10000, 0, 0, 0, false},
    {"mistral", "MistralForCausalLM", kLlama, kWindowEverywhere,
     32000, 4096, 14336, 32, 32, 8, 0, 131072, 1e-6, 10000, 0, 4096, 0, false},
    {"qwen2", "Qwen2ForCausalLM", kLlama, kQkvBias | kWindowSwitch | kLayerTypes,
     151936, 4096, 22016, 32, 32, 32, 0, 32768, 1e-6, 10000, 0, 4096, 0, false},
    {"qwen3", "Qwen3ForCausalLM", kLlama, kAttentionBias | kHeadNorm | kWindowSwitch | kLayerTypes,
     151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e-6, 10000, 0, 4096, 0, false},
    {"smollm3", "SmolLM3ForCausalLM", kLlama,
     kAttentionBias | kMlpBias | kNoRopeLayers | kWindowSwitch | kLayerTypes,
     128256, 2048, 11008, 36, 16, 4, 0, 32768, 1e-6, 2000000, 0, 0, 0, true},
    {"phi3", "Phi3ForCausalLM", kLlama, kFused | kPartialRotary | kWindowEverywhere,
     32064, 3072, 8192, 32, 32, 0, 0, 4096, 1e-5, 10000, 0, 0, 0, false},
    {"olmo2", "Olmo2ForCausalLM", kLlama, kAttentionBias | kAllNorm | kNormsAfter,
     50304, 4096, 11008, 32, 32, 0, 0, 2048, 1e-5, 10000, 0, 0, 0, false},
    {"olmo3", "Olmo3ForCausalLM", kLlama,
     kAttentionBias | kAllNorm | kNormsAfter | kWindowPattern | kLayerTypes | kLocalRope,
     50304, 4096, 11008, 32, 32, 0, 0, 2048, 1e-5, 500000, 0, 4096, 4, false},
    {"granite", "GraniteForCausalLM", kLlama, kAttentionBias | kMlpBias | kMultipliers,
     32000, 4096, 11008, 32, 32, 0, 0, 2048, 1e-6, 10000, 0, 0, 0, false},
    {"gemma2", "Gemma2ForCausalLM", kLlama, kAttentionBias | kGemma | kNormsBoth | kWindowPattern | kLayerTypes,
     256000, 2304, 9216, 26, 8, 4, 256, 8192, 1e-6, 10000, 0, 4096, 2, true},
    {"gemma3_text", "Gemma3ForCausalLM", kLlama,
     kAttentionBias | kGemma | kNormsBoth | kHeadNorm | kWindowPattern | kLayerTypes | kLocalRope,
     262208, 2304, 9216, 26, 8, 4, 256, 131072, 1e-6, 1000000, 10000, 4096, 6, true},
};
// clang-format on

}  // namespace

std::span<const HubFamily> hub_families() { return kHubFamilies; }

const HubFamily* find_family(std::string_view model_type) {
  for (const HubFamily& family : kHubFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

}  // namespace tandem::hub
