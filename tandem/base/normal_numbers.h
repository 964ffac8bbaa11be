// Philox and Box-Muller, for the CPU and for CUDA kernels: starting weights must not depend on what made
// them. So log, cos and sin are our own, of operations whose results IEEE 754 settles; libraries differ in
// the last bit. It takes a build without contraction: -ffp-contract=off, and -fmad=false for nvcc.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>

#include "tandem/base/device_function.h"

namespace tandem {

struct PhiloxBlock {
  uint32_t word[4];
};

TANDEM_HOST_DEVICE inline void philox_round(uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3,
                                            uint32_t k0, uint32_t k1) {
  const uint64_t p0 = uint64_t{0xd2511f53u} * c0;
  const uint64_t p1 = uint64_t{0xcd9e8d57u} * c2;
  const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
  const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
  c0 = n0;
  c1 = static_cast<uint32_t>(p1);
  c2 = n2;
  c3 = static_cast<uint32_t>(p0);
}

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxStep0 = 0x9e3779b9u, kPhiloxStep1 = 0xbb67ae85u;  // of the key, each round

TANDEM_HOST_DEVICE inline PhiloxBlock philox_block(uint64_t seed, uint64_t stream, uint64_t counter) {
  auto c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
  auto c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round, k0 += kPhiloxStep0, k1 += kPhiloxStep1)
    philox_round(c0, c1, c2, c3, k0, k1);
  return {{c0, c1, c2, c3}};
}

// Accurate to 1e-9, as cos_sin_of is: well below the fp32 that the results are rounded to.
TANDEM_HOST_DEVICE inline double log_of(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);  // bit_cast is for the CPU only
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)): the mantissa's upper half counts one exponent higher.
  const uint64_t shifted = bits + (0x3ff0000000000000ull - 0x3fe6a09e667f3bcdull);
  const double e = static_cast<double>(static_cast<int64_t>(shifted >> 52) - 1023);
  const uint64_t mantissa = (shifted & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull;
  double m;
  std::memcpy(&m, &mantissa, sizeof m);
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  const double series = 1.0 + z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11)))));
  return e * std::numbers::ln2 + 2.0 * s * series;
}

// cos and sin of a turn given as a fraction of 2^32: the quadrant is exact, the rest is within an eighth of a
// turn.
TANDEM_HOST_DEVICE inline void cos_sin_of(uint32_t turn, double& cosine, double& sine) {
  const uint32_t quadrant = (turn + 0x20000000u) >> 30;
  const auto rest = static_cast<int32_t>(turn - (quadrant << 30));
  const double x = static_cast<double>(rest) * (2.0 * std::numbers::pi * 0x1p-32), z = x * x;
  const double s = x * (1.0 + z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880)))));
  const double c =
      1.0 + z * (-0.5 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800)))));
  cosine = (quadrant & 1) != 0 ? s : c;
  sine = (quadrant & 1) != 0 ? c : s;
  if (quadrant == 1 || quadrant == 2) cosine = -cosine;
  if (quadrant == 2 || quadrant == 3) sine = -sine;
}

// Two standard normals of two words.
TANDEM_HOST_DEVICE inline void normal_pair(uint32_t word, uint32_t turn, float& first, float& second) {
  const double uniform = (static_cast<double>(word) + 0.5) * 0x1p-32;
  const double radius = std::sqrt(-2.0 * log_of(uniform));
  double cosine = 0, sine = 0;
  cos_sin_of(turn, cosine, sine);
  first = static_cast<float>(radius * cosine);
  second = static_cast<float>(radius * sine);
}

// Four standard normals of a block's bits.
TANDEM_HOST_DEVICE inline void normals_of(const PhiloxBlock& block, float out[4]) {
  normal_pair(block.word[0], block.word[1], out[0], out[1]);
  normal_pair(block.word[2], block.word[3], out[2], out[3]);
}

}  // namespace tandem
