#include "tandem/base/rng.h"

#include "tandem/base/normal_numbers.h"

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
  const auto [word] = philox_block(seed_, stream_, counter);
  return {word[0], word[1], word[2], word[3]};
}

uint64_t Rng::below(uint64_t n, uint64_t limit) const { return (uint64_t{bits(n)} * limit) >> 32; }

float Rng::uniform(uint64_t n) const { return static_cast<float>(bits(n) >> 8) * 0x1p-24f; }

void Rng::normals(uint64_t block_index, float out[4]) const {
  normals_of(philox_block(seed_, stream_, block_index), out);
}

}  // namespace tandem
