// An fp32 number in two halves of 16 bits: `high` is the number rounded to bf16, and `low` what it lacks. A
// bf16 weight and its `low` are the fp32 master that is trained, at 2 bytes beside the weight instead of 4.
//
// high = (bits + 0x8000) >> 16, half away from zero, and low is the lower half of the bits, so that
// bits = (high << 16) + low with low's sign. It gives back every number, infinity and subnormal; the largest
// ones round to infinity, and come back too. Rounded to nearest even, a number half way could not: `high`
// would not say which way it went. A NaN stays one: it is made quiet and its low half zero.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tandem/base/device_function.h"
#include "tandem/base/dtype.h"

namespace tandem {

struct SplitFloat {
  uint16_t high;  // the bits of a bf16
  int16_t low;
};

TANDEM_HOST_DEVICE inline SplitFloat split_bits(uint32_t bits) {
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t high = is_nan ? (bits >> 16) | 0x40u : (bits + 0x8000u) >> 16;
  return {static_cast<uint16_t>(high), static_cast<int16_t>(is_nan ? 0 : bits & 0xffffu)};
}
TANDEM_HOST_DEVICE inline uint32_t join_bits(SplitFloat halves) {
  return (static_cast<uint32_t>(halves.high) << 16) + static_cast<uint32_t>(static_cast<int32_t>(halves.low));
}

inline SplitFloat split_float(float x) { return split_bits(std::bit_cast<uint32_t>(x)); }
inline float join_float(SplitFloat halves) { return std::bit_cast<float>(join_bits(halves)); }

// How a master is stored beside weights of this 16-bit type: whole, or its low half.
constexpr DType master_dtype(DType weights) { return weights == DType::BF16 ? DType::I16 : DType::F32; }

// Of many numbers: `high` and `low` have half of the bytes of the fp32 ones each.
void split_floats(std::span<const std::byte> floats, std::span<std::byte> high, std::span<std::byte> low);
void join_floats(std::span<const std::byte> high, std::span<const std::byte> low,
                 std::span<std::byte> floats);

}  // namespace tandem
