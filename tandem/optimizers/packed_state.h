// Numbers that an optimizer keeps between steps in fewer bits than fp32: bf16, or 8 bits with a scale for
// each block of kStateBlock numbers. What is read is fp32 again; what is written is rounded up or down at
// random, by how near it is to both (stochastic rounding), so that small changes are not lost: means move by
// less than a step of such numbers. The random bits are a hash of the step and of the number's place in its
// parameter, which are the same on every rank, device and resume.
//
// In 8 bits, a block's scale is the largest power of two that is not above its largest magnitude, and a code
// counts steps down from there over 16 octaves: a number is (1 + m / 8) 2^-e of the scale with a sign, or
// (1 + m / 16) 2^-e without one, and zero is zero. Means of squares are kept by their root, which doubles
// the octaves, and no positive one becomes zero: a step is divided by it. Numbers read from such a block,
// written again, give the same codes.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tandem/base/device_function.h"
#include "tandem/base/dtype.h"

namespace tandem {

inline constexpr int64_t kStateBlock = 256;
constexpr int64_t num_state_blocks(int64_t elems) { return (elems + kStateBlock - 1) / kStateBlock; }
// Of the buffer beside the state of this name.
inline std::string scale_name(std::string_view state) { return std::string(state) + "_scale"; }

// Random bits of the number `place` (a hash's finaliser, as rng.h has it).
TANDEM_HOST_DEVICE inline uint32_t rounding_bits(uint64_t key, uint64_t place) {
  uint64_t x = key + place * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return static_cast<uint32_t>((x ^ (x >> 31)) >> 32);
}
// A key of state number `state` in step `step`.
TANDEM_HOST_DEVICE inline uint64_t rounding_key(int64_t step, int state) {
  return (static_cast<uint64_t>(step) * 4 + static_cast<uint64_t>(state)) * 0xd1342543de82ef95ull;
}

TANDEM_HOST_DEVICE inline uint32_t bits_of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<uint32_t>(x);
#endif
}
TANDEM_HOST_DEVICE inline float float_of(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

TANDEM_HOST_DEVICE inline uint16_t round_to_bf16(float x, uint32_t random) {
  const uint32_t bits = bits_of(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return static_cast<uint16_t>(bits >> 16);
  return static_cast<uint16_t>((bits + (random & 0xffffu)) >> 16);
}
TANDEM_HOST_DEVICE inline float from_bf16(uint16_t bits) {
  return float_of(static_cast<uint32_t>(bits) << 16);
}

// The scale of a block whose largest magnitude is this; 0 where all of it counts as zero.
TANDEM_HOST_DEVICE inline float scale_of(float largest) {
  const uint32_t exponent = bits_of(largest) & 0x7f800000u;
  return exponent < (32u << 23) ? 0.0f : float_of(exponent);
}

// A magnitude, as a fraction of the scale, in codes of `kMantissa` bits below the octave's four.
template <int kMantissa>
TANDEM_HOST_DEVICE inline uint32_t code_of(float fraction, uint32_t random) {
  constexpr int kDropped = 23 - kMantissa;
  constexpr uint32_t kFirst = (127u - 15u) << kMantissa, kLast = (16u << kMantissa) - 1;
  const uint32_t rounded = (bits_of(fraction) + (random & ((1u << kDropped) - 1))) >> kDropped;
  if (rounded <= kFirst) {  // below the smallest code: that one or none
    const float smallest = float_of((kFirst + 1) << kDropped);
    return static_cast<float>(random >> 8) * 0x1p-24f * smallest < fraction ? 1 : 0;
  }
  const uint32_t code = rounded - kFirst;
  return code < kLast ? code : kLast;
}
template <int kMantissa>
TANDEM_HOST_DEVICE inline float magnitude_of(uint32_t code) {
  return code == 0 ? 0.0f : float_of((((127u - 15u) << kMantissa) + code) << (23 - kMantissa));
}

// In 8 bits: what of a state is kept, and the state again. A square's is its root.
TANDEM_HOST_DEVICE inline float kept_of(float state, bool square) {
#ifdef __CUDA_ARCH__
  return square ? __fsqrt_rn(state) : state;
#else
  return square ? std::sqrt(state) : state;
#endif
}
TANDEM_HOST_DEVICE inline uint8_t encode_state(float kept, float scale, bool square, uint32_t random) {
  if (scale == 0) return 0;
  const uint32_t sign = bits_of(kept) >> 31;
  const float fraction = float_of(bits_of(kept) & 0x7fffffffu) / scale;  // exact: a power of two
  if (!square) return static_cast<uint8_t>(code_of<3>(fraction, random) | (sign << 7));
  const uint32_t code = code_of<4>(fraction, random);
  return static_cast<uint8_t>(code == 0 && fraction > 0 ? 1 : code);
}
TANDEM_HOST_DEVICE inline float decode_state(uint8_t code, float scale, bool square) {
  if (square) {
    const float root = magnitude_of<4>(code) * scale;
    return root * root;
  }
  const float magnitude = magnitude_of<3>(code & 0x7fu) * scale;
  return code & 0x80u ? -magnitude : magnitude;
}

// Many states: codes of type `packed` (bf16, or u8 with scales), whose first number is the first of a block.
// `place` is the first number's in its parameter.
void unpack_states(DType packed, bool square, const void* codes, const float* scales, std::span<float> to);
void pack_states(DType packed, bool square, std::span<const float> from, uint64_t key, uint64_t place,
                 void* codes, float* scales);

}  // namespace tandem
