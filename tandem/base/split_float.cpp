#include "tandem/base/split_float.h"

#include <cstring>

#include "tandem/base/error.h"

namespace tandem {
namespace {

// The bytes may begin anywhere: numbers are copied from and to them, so many at a time that vectors pay.
constexpr size_t kBlock = 64;

template <size_t kCount>
void split_block(const std::byte* floats, std::byte* high, std::byte* low) {
  uint32_t bits[kCount];
  uint16_t highs[kCount];
  int16_t lows[kCount];
  std::memcpy(bits, floats, sizeof bits);
  for (size_t i = 0; i < kCount; ++i) {
    const SplitFloat halves = split_bits(bits[i]);
    highs[i] = halves.high;
    lows[i] = halves.low;
  }
  std::memcpy(high, highs, sizeof highs);
  std::memcpy(low, lows, sizeof lows);
}

template <size_t kCount>
void join_block(const std::byte* high, const std::byte* low, std::byte* floats) {
  uint32_t bits[kCount];
  uint16_t highs[kCount];
  int16_t lows[kCount];
  std::memcpy(highs, high, sizeof highs);
  std::memcpy(lows, low, sizeof lows);
  for (size_t i = 0; i < kCount; ++i) bits[i] = join_bits({highs[i], lows[i]});
  std::memcpy(floats, bits, sizeof bits);
}

size_t checked_count(size_t float_bytes, size_t high_bytes, size_t low_bytes) {
  TANDEM_CHECK(high_bytes == low_bytes && high_bytes + low_bytes == float_bytes && float_bytes % 4 == 0,
               "{} bytes in halves of {} and {}", float_bytes, high_bytes, low_bytes);
  return float_bytes / sizeof(float);
}

}  // namespace

void split_floats(std::span<const std::byte> floats, std::span<std::byte> high, std::span<std::byte> low) {
  const size_t count = checked_count(floats.size(), high.size(), low.size());
  size_t i = 0;
  for (; i + kBlock <= count; i += kBlock)
    split_block<kBlock>(floats.data() + 4 * i, high.data() + 2 * i, low.data() + 2 * i);
  for (; i < count; ++i) split_block<1>(floats.data() + 4 * i, high.data() + 2 * i, low.data() + 2 * i);
}

void join_floats(std::span<const std::byte> high, std::span<const std::byte> low,
                 std::span<std::byte> floats) {
  const size_t count = checked_count(floats.size(), high.size(), low.size());
  size_t i = 0;
  for (; i + kBlock <= count; i += kBlock)
    join_block<kBlock>(high.data() + 2 * i, low.data() + 2 * i, floats.data() + 4 * i);
  for (; i < count; ++i) join_block<1>(high.data() + 2 * i, low.data() + 2 * i, floats.data() + 4 * i);
}

}  // namespace tandem
