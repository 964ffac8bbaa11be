// The next token of a text, drawn from a model's logits.
#pragma once

#include <cstdint>
#include <span>

namespace tandem::cli {

struct Drawing {
  double temperature = 0.8;  // 0: always the most likely
  int64_t top_k = 0;         // only the k most likely; 0: all
  double top_p = 1;          // only the most likely ones that together have at least this probability
};

// By `uniform` in [0, 1). Of equal logits the first is more likely than those after it. kNoToken where the
// logits are no numbers.
inline constexpr int32_t kNoToken = -1;
int32_t draw(std::span<const float> logits, const Drawing& how, float uniform);

}  // namespace tandem::cli
