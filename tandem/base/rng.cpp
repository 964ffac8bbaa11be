#include "tandem/base/rng.h"

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

void Rng::normals(uint64_t block_index, float out[4]) const {
  const auto raw = block(block_index);
  for (int pair = 0; pair < 2; ++pair) {
    const double u = (static_cast<double>(raw[2 * pair]) + 0.5) * 0x1p-32;
    const double v = static_cast<double>(raw[2 * pair + 1]) * 0x1p-32;
    const double radius = std::sqrt(-2.0 * std::log(u));
    out[2 * pair] = static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * v));
    out[2 * pair + 1] = static_cast<float>(radius * std::sin(2.0 * std::numbers::pi * v));
  }
}

}  // namespace tandem
