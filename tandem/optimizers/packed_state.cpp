#include "tandem/optimizers/packed_state.h"

#include <algorithm>

namespace tandem {

void unpack_states(DType packed, bool square, const void* codes, const float* scales, std::span<float> to) {
  if (packed == DType::BF16) {
    const auto* from = static_cast<const uint16_t*>(codes);
    for (size_t i = 0; i < to.size(); ++i) to[i] = from_bf16(from[i]);
    return;
  }
  const auto* from = static_cast<const uint8_t*>(codes);
  for (size_t i = 0; i < to.size(); ++i)
    to[i] = decode_state(from[i], scales[i / static_cast<size_t>(kStateBlock)], square);
}

void pack_states(DType packed, bool square, std::span<const float> from, uint64_t key, uint64_t place,
                 void* codes, float* scales) {
  if (packed == DType::BF16) {
    auto* to = static_cast<uint16_t*>(codes);
    for (size_t i = 0; i < from.size(); ++i) to[i] = round_to_bf16(from[i], rounding_bits(key, place + i));
    return;
  }
  auto* to = static_cast<uint8_t*>(codes);
  for (size_t begin = 0; begin < from.size(); begin += kStateBlock) {
    const size_t end = std::min(from.size(), begin + static_cast<size_t>(kStateBlock));
    float largest = 0;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(kept_of(from[i], square)));
    const float scale = scale_of(largest);
    scales[begin / static_cast<size_t>(kStateBlock)] = scale;
    for (size_t i = begin; i < end; ++i)
      to[i] = encode_state(kept_of(from[i], square), scale, square, rounding_bits(key, place + i));
  }
}

}  // namespace tandem
