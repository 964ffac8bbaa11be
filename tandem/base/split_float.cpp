#include "tandem/base/split_float.h"

#include <cstring>

#include "tandem/base/error.h"

namespace tandem {
namespace {

size_t checked_count(size_t float_bytes, size_t high_bytes, size_t low_bytes) {
  TANDEM_CHECK(high_bytes == low_bytes && high_bytes + low_bytes == float_bytes && float_bytes % 4 == 0,
               "{} bytes in halves of {} and {}", float_bytes, high_bytes, low_bytes);
  return float_bytes / sizeof(float);
}

}  // namespace

void split_floats(std::span<const std::byte> floats, std::span<std::byte> high, std::span<std::byte> low) {
  const size_t count = checked_count(floats.size(), high.size(), low.size());
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, floats.data() + 4 * i, 4);
    const SplitFloat halves = split_bits(bits);
    std::memcpy(high.data() + 2 * i, &halves.high, 2);
    std::memcpy(low.data() + 2 * i, &halves.low, 2);
  }
}

void join_floats(std::span<const std::byte> high, std::span<const std::byte> low,
                 std::span<std::byte> floats) {
  const size_t count = checked_count(floats.size(), high.size(), low.size());
  for (size_t i = 0; i < count; ++i) {
    SplitFloat halves{};
    std::memcpy(&halves.high, high.data() + 2 * i, 2);
    std::memcpy(&halves.low, low.data() + 2 * i, 2);
    const uint32_t bits = join_bits(halves);
    std::memcpy(floats.data() + 4 * i, &bits, 4);
  }
}

}  // namespace tandem
