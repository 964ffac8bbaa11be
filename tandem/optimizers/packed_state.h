// Numbers that an optimizer keeps between steps in fewer bits than fp32: bf16, or 8 bits with a scale for
// each block of kStateBlock numbers. What is read is fp32 again; what is written is rounded up or down at
// random, by how near it is to both (stochastic rounding), so that small changes are not lost: means move by
// less than a step of such numbers. The random bits are a hash of the step and of the number's place in its
// parameter, which are the same on every rank, device and resume.
//
// In 8 bits, a block's scale is the largest power of two that is not above its largest magnitude, and codes
// are small floats of it (Kept says of what):
// - a root of a mean of squares, (1 + m / 2^k) 2^-e without a sign, over 16, 8 or 4 octaves, as few as hold
//   the block's, so that k is 4, 5 or 6. The scale's lowest bits say which. No positive one becomes zero: a
//   step is divided by it.
// - a share, with a sign: the first moment over that root, as it was rounded. It is what a step is made of,
//   and never far above 1, so that its codes are fine where most of them lie: 5 bits of mantissa, and below
//   1/4 of the scale steps of 1/128 of it.
// - a plain number: a sign, 3 bits of mantissa over 16 octaves.
// Zero is zero. Numbers read from a block, written again, are the same numbers: a root has at most 7 bits, a
// share 6, so that their product is exact.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "tandem/base/device_function.h"
#include "tandem/base/dtype.h"
#include "tandem/optimizers/entry.h"

namespace tandem {

inline constexpr int64_t kStateBlock = 64;
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

// Of a block: its largest magnitude, and the smallest that is not zero, of what is kept.
struct BlockRange {
  float largest = 0;
  float smallest = std::numeric_limits<float>::infinity();

  TANDEM_HOST_DEVICE void add(float kept) {
    const float magnitude = float_of(bits_of(kept) & 0x7fffffffu);
    if (magnitude > largest) largest = magnitude;
    if (magnitude > 0 && magnitude < smallest) smallest = magnitude;
  }
};

// Where all of a block is below 2^-48 it counts as zero: so products of what is read back do not underflow.
TANDEM_HOST_DEVICE inline float scale_of(Kept kept, const BlockRange& range) {
  const uint32_t exponent = bits_of(range.largest) & 0x7f800000u;
  if (exponent < ((127u - 48u) << 23)) return 0;
  const float scale = float_of(exponent);
  if (kept != Kept::Root) return scale;
  const uint32_t finer = range.smallest > scale * 0x1p-3f ? 2 : range.smallest > scale * 0x1p-7f ? 1 : 0;
  return float_of(exponent | finer);
}

// Magnitudes as fractions of the scale. The smallest octave's first number has code zero, which is zero: what
// is there, or below, becomes the next one or none.
TANDEM_HOST_DEVICE inline uint32_t octave_code(float fraction, uint32_t mantissa, uint32_t octaves,
                                               uint32_t random) {
  const uint32_t dropped = 23 - mantissa, first = (128 - octaves) << mantissa;
  const uint32_t rounded = (bits_of(fraction) + (random & ((1u << dropped) - 1))) >> dropped;
  if (rounded <= first) {
    const float smallest = float_of((first + 1) << dropped);
    return static_cast<float>(random >> 8) * 0x1p-24f * smallest < fraction ? 1 : 0;
  }
  const uint32_t code = rounded - first, last = (octaves << mantissa) - 1;
  return code < last ? code : last;
}
TANDEM_HOST_DEVICE inline float octave_magnitude(uint32_t code, uint32_t mantissa, uint32_t octaves) {
  return code == 0 ? 0.0f : float_of((((128 - octaves) << mantissa) + code) << (23 - mantissa));
}

// Shares have even steps below 1/4.
TANDEM_HOST_DEVICE inline uint32_t share_code(float fraction, uint32_t random) {
  if (fraction < 0.25f) return (static_cast<uint32_t>(fraction * 0x1p23f) + (random >> 16)) >> 16;
  const uint32_t code = ((bits_of(fraction) + (random & 0x3ffffu)) >> 18) - (124u << 5);
  return code < 127 ? code : 127;
}
TANDEM_HOST_DEVICE inline float share_magnitude(uint32_t code) {
  return code < 32 ? static_cast<float>(code) * 0x1p-7f : float_of(((124u << 5) + code) << 18);
}

// What of a state is kept, and the state again; `root` is what was kept of the mean of squares beside a
// share.
TANDEM_HOST_DEVICE inline float kept_of(Kept kept, float state, float root) {
  if (kept == Kept::Plain) return state;
  if (kept == Kept::Share && root == 0) return 0;
#ifdef __CUDA_ARCH__
  return kept == Kept::Root ? __fsqrt_rn(state) : __fdiv_rn(state, root);
#else
  return kept == Kept::Root ? std::sqrt(state) : state / root;
#endif
}
TANDEM_HOST_DEVICE inline float state_of(Kept kept, float number, float root) {
#ifdef __CUDA_ARCH__
  return kept == Kept::Plain ? number : __fmul_rn(number, kept == Kept::Root ? number : root);
#else
  return kept == Kept::Plain ? number : number * (kept == Kept::Root ? number : root);
#endif
}

TANDEM_HOST_DEVICE inline float power_of(float scale) { return float_of(bits_of(scale) & 0x7f800000u); }
TANDEM_HOST_DEVICE inline uint32_t root_mantissa(float scale) { return 4 + (bits_of(scale) & 3u); }

TANDEM_HOST_DEVICE inline uint8_t encode_state(Kept kept, float number, float scale, uint32_t random) {
  if (scale == 0) return 0;
  const uint32_t sign = bits_of(number) >> 31;
  const float fraction = float_of(bits_of(number) & 0x7fffffffu) / power_of(scale);  // exact
  if (kept == Kept::Plain) return static_cast<uint8_t>(octave_code(fraction, 3, 16, random) | (sign << 7));
  if (kept == Kept::Share) return static_cast<uint8_t>(share_code(fraction, random) | (sign << 7));
  const uint32_t mantissa = root_mantissa(scale);
  const uint32_t code = octave_code(fraction, mantissa, 256u >> mantissa, random);
  return static_cast<uint8_t>(code == 0 && fraction > 0 ? 1 : code);
}
TANDEM_HOST_DEVICE inline float decode_state(Kept kept, uint8_t code, float scale) {
  if (kept == Kept::Root) {
    const uint32_t mantissa = root_mantissa(scale);
    return octave_magnitude(code, mantissa, 256u >> mantissa) * power_of(scale);
  }
  const uint32_t low = code & 0x7fu;
  const float magnitude =
      (kept == Kept::Share ? share_magnitude(low) : octave_magnitude(low, 3, 16)) * power_of(scale);
  return code & 0x80u ? -magnitude : magnitude;
}

// One state of many numbers: codes of type `packed` (bf16, or u8 with scales), whose first number is the
// first of a block, and beside a share in 8 bits the roots that belong to it. `place` is the first number's
// in its parameter.
void unpack_states(DType packed, Kept kept, const void* codes, const float* scales,
                   std::span<const float> roots, std::span<float> to);
void pack_states(DType packed, Kept kept, std::span<const float> from, std::span<const float> roots,
                 uint64_t key, uint64_t place, void* codes, float* scales);
// As they were rounded.
void unpack_roots(const void* codes, const float* scales, std::span<float> roots);

// All states of a parameter, or of a part that begins with a block.
struct PackedStates {
  DType type = DType::U8;
  std::span<const StateTensor> names;
  std::array<std::byte*, 2> codes = {};
  std::array<float*, 2> scales = {};  // of u8

  void unpack(std::span<float* const> to, int64_t elems) const;
  void pack(std::span<const float* const> numbers, int64_t elems, int64_t step, uint64_t place) const;
  PackedStates from(int64_t begin) const;  // a block's first number
};

}  // namespace tandem
