// The families of models that Hugging Face's config.json may name, and what each has beyond plain llama. One
// table: reading and writing config.json and the names of tensors all go by it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tandem/config/families.h"

namespace tandem::hub {

enum HubTrait : unsigned {
  kAttentionBias = 1 << 0,     // key attention_bias: biases on q, k, v and o
  kMlpBias = 1 << 1,           // key mlp_bias
  kQkvBias = 1 << 2,           // biases on q, k and v, always
  kHeadNorm = 1 << 3,          // q_norm and k_norm of each head
  kAllNorm = 1 << 4,           // q_norm and k_norm of the whole projection
  kNormsAfter = 1 << 5,        // norms after attention and MLP only
  kNormsBoth = 1 << 6,         // before and after
  kGemma = 1 << 7,             // norms times 1 + weight, embedding times sqrt(width), query_pre_attn_scalar,
                               // hidden_activation, softcaps
  kMultipliers = 1 << 8,       // embedding_multiplier and the like
  kWindowEverywhere = 1 << 9,  // sliding_window in all layers
  kWindowSwitch = 1 << 10,     // use_sliding_window, for layers from max_window_layers on
  kWindowPattern = 1 << 11,    // every pattern-th layer without it
  kLayerTypes = 1 << 12,       // key layer_types
  kLocalRope = 1 << 13,        // layers with a window have a theta of their own, and are not scaled
  kNoRopeLayers = 1 << 14,     // key no_rope_layers
  kPartialRotary = 1 << 15,    // key partial_rotary_factor
  kFused = 1 << 16,            // qkv_proj and gate_up_proj in one tensor each
};

// Numbers are what transformers takes where config.json lacks the key; 0 is "derived" or "none".
struct HubFamily {
  std::string_view model_type, architecture;
  Family family;
  unsigned traits;
  int64_t vocab, width, ffn, layers, heads, kv_heads, head, positions;
  double eps, theta, local_theta;
  int64_t window, pattern;
  bool tied;

  bool has(unsigned trait) const { return (traits & trait) != 0; }
};

std::span<const HubFamily> hub_families();                  // the plainest first
const HubFamily* find_family(std::string_view model_type);  // nullptr when there is none

}  // namespace tandem::hub
