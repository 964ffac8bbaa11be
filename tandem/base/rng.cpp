#include "tandem/base/rng.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace tandem {

uint64_t mix_bits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a, then scrambled
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return mix_bits(hash);
}

std::array<uint32_t, 4> Rng::block(uint64_t counter) const {
  auto c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
  auto c2 = static_cast<uint32_t>(stream_), c3 = static_cast<uint32_t>(stream_ >> 32);
  auto k0 = static_cast<uint32_t>(seed_), k1 = static_cast<uint32_t>(seed_ >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xd2511f53u} * c0;
    const uint64_t p1 = uint64_t{0xcd9e8d57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c0 = n0;
    c1 = static_cast<uint32_t>(p1);
    c2 = n2;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return {c0, c1, c2, c3};
}

uint64_t Rng::below(uint64_t n, uint64_t limit) const { return (uint64_t{bits(n)} * limit) >> 32; }

float Rng::uniform(uint64_t n) const { return static_cast<float>(bits(n) >> 8) * 0x1p-24f; }

namespace {

// log and cos/sin of our own, from additions and multiplications alone: libm's differ between machines in the
// last bit, and starting weights must not. Accurate to 1e-9, well below the fp32 they are rounded to.
double log_of(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)): the mantissa's upper half counts one exponent higher.
  const uint64_t shifted = bits + (0x3ff0000000000000ull - 0x3fe6a09e667f3bcdull);
  const double e = static_cast<double>(static_cast<int64_t>(shifted >> 52) - 1023);
  const double m = std::bit_cast<double>((shifted & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull);
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  const double series = 1.0 + z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11)))));
  return e * std::numbers::ln2 + 2.0 * s * series;
}

// cos and sin of a turn given as a fraction of 2^32: the quadrant is exact, the rest is within an eighth of a
// turn.
void cos_sin_of(uint32_t turn, double& cosine, double& sine) {
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

}  // namespace

void Rng::normals(uint64_t block_index, float out[4]) const {
  const auto raw = block(block_index);
  for (size_t pair = 0; pair < 2; ++pair) {
    const double radius = std::sqrt(-2.0 * log_of((static_cast<double>(raw[2 * pair]) + 0.5) * 0x1p-32));
    double cosine = 0, sine = 0;
    cos_sin_of(raw[2 * pair + 1], cosine, sine);
    out[2 * pair] = static_cast<float>(radius * cosine);
    out[2 * pair + 1] = static_cast<float>(radius * sine);
  }
}

}  // namespace tandem
