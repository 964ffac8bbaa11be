#include "tandem/optimizers/packed_state.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr auto kBlock = static_cast<size_t>(kStateBlock);

float root_at(std::span<const float> roots, size_t i) { return roots.empty() ? 0 : roots[i]; }

}  // namespace

void unpack_roots(const void* codes, const float* scales, std::span<float> roots) {
  const auto* from = static_cast<const uint8_t*>(codes);
  for (size_t i = 0; i < roots.size(); ++i) roots[i] = decode_state(Kept::Root, from[i], scales[i / kBlock]);
}

void unpack_states(DType packed, Kept kept, const void* codes, const float* scales,
                   std::span<const float> roots, std::span<float> to) {
  if (packed == DType::BF16) {
    const auto* from = static_cast<const uint16_t*>(codes);
    for (size_t i = 0; i < to.size(); ++i) to[i] = from_bf16(from[i]);
    return;
  }
  const auto* from = static_cast<const uint8_t*>(codes);
  for (size_t i = 0; i < to.size(); ++i)
    to[i] = state_of(kept, decode_state(kept, from[i], scales[i / kBlock]), root_at(roots, i));
}

void pack_states(DType packed, Kept kept, std::span<const float> from, std::span<const float> roots,
                 uint64_t key, uint64_t place, void* codes, float* scales) {
  if (packed == DType::BF16) {
    auto* to = static_cast<uint16_t*>(codes);
    for (size_t i = 0; i < from.size(); ++i) to[i] = round_to_bf16(from[i], rounding_bits(key, place + i));
    return;
  }
  auto* to = static_cast<uint8_t*>(codes);
  for (size_t begin = 0; begin < from.size(); begin += kBlock) {
    const size_t end = std::min(from.size(), begin + kBlock);
    float numbers[kBlock];
    BlockRange range;
    for (size_t i = begin; i < end; ++i)
      range.add(numbers[i - begin] = kept_of(kept, from[i], root_at(roots, i)));
    const float scale = scale_of(kept, range);
    scales[begin / kBlock] = scale;
    for (size_t i = begin; i < end; ++i)
      to[i] = encode_state(kept, numbers[i - begin], scale, rounding_bits(key, place + i));
  }
}

PackedStates PackedStates::from(int64_t begin) const {
  PackedStates later = *this;
  for (size_t s = 0; s < names.size(); ++s) {
    later.codes[s] += begin * dtype_bytes(type);
    if (scales[s] != nullptr) later.scales[s] += begin / kStateBlock;
  }
  return later;
}

void PackedStates::unpack(std::span<float* const> to, int64_t elems) const {
  const int root = root_state(names);
  for (int64_t begin = 0; begin < elems; begin += kStateBlock) {
    const PackedStates block = from(begin);
    const auto count = static_cast<size_t>(std::min(kStateBlock, elems - begin));
    float memory[kBlock];
    const std::span roots(memory, type == DType::U8 && root >= 0 ? count : 0);
    if (!roots.empty()) unpack_roots(block.codes[root], block.scales[root], roots);
    for (size_t s = 0; s < names.size(); ++s)
      unpack_states(type, names[s].kept, block.codes[s], block.scales[s], roots,
                    std::span(to[s] + begin, count));
  }
}

void PackedStates::pack(std::span<const float* const> numbers, int64_t elems, int64_t step,
                        uint64_t place) const {
  const int root = root_state(names);
  for (int64_t begin = 0; begin < elems; begin += kStateBlock) {
    const PackedStates block = from(begin);
    const auto count = static_cast<size_t>(std::min(kStateBlock, elems - begin));
    const auto pack_one = [&](size_t s, std::span<const float> roots) {
      pack_states(type, names[s].kept, std::span(numbers[s] + begin, count), roots,
                  rounding_key(step, static_cast<int>(s)), place + static_cast<uint64_t>(begin),
                  block.codes[s], block.scales[s]);
    };
    float memory[kBlock];
    const std::span roots(memory, type == DType::U8 && root >= 0 ? count : 0);
    if (root >= 0) pack_one(static_cast<size_t>(root), {});
    if (!roots.empty()) unpack_roots(block.codes[root], block.scales[root], roots);
    for (size_t s = 0; s < names.size(); ++s) {
      if (static_cast<int>(s) != root) pack_one(s, roots);
    }
  }
}

}  // namespace tandem
