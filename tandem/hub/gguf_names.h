// The architectures of GGUF files that are models of ours, and llama.cpp's names of their tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::hub {

struct GgufArchitecture {
  std::string_view model_type, name;
  int64_t window_period;  // of layers, of which the last has no window; 0: no windows
  bool turns_pairs;       // rotary positions turn neighbours, so rows of q and k change places
  int64_t odd_layers;     // a model of so many divides scores by sqrt(width / heads), not sqrt(head); 0: none
};

// nullptr where there is none.
const GgufArchitecture* gguf_architecture_of(std::string_view model_type);
const GgufArchitecture* find_gguf_architecture(std::string_view name);

// The tensor of a parameter's part: "blocks.3.qkv.weight", part 1 of 3, is "blk.3.attn_k.weight".
std::string gguf_name(const std::string& param, size_t part, size_t num_parts);

}  // namespace tandem::hub
