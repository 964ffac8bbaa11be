// Counter-based random numbers (Philox 4x32-10): the n-th number of a stream is a pure function of
// (seed, stream, n). Nothing is ever "advanced", so results depend on no thread, rank or restart.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace tandem {

uint64_t hash_name(std::string_view name);  // a stable 64-bit key, for instance of a parameter's name
uint64_t mix_bits(uint64_t x);              // a bijective scrambler (splitmix64's finaliser)

class Rng {
 public:
  Rng(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  std::array<uint32_t, 4> block(uint64_t counter) const;
  uint32_t bits(uint64_t n) const { return block(n / 4)[n % 4]; }
  uint64_t below(uint64_t n, uint64_t limit) const;        // uniform in [0, limit), limit < 2^32
  float uniform(uint64_t n) const;                         // [0, 1), 24 bits
  void normals(uint64_t block_index, float out[4]) const;  // four standard normals (Box-Muller)
  // The same of many blocks in turn: four values each, so a multiple of four.
  void normals(uint64_t first_block, std::span<float> out) const;

 private:
  uint64_t seed_;
  uint64_t stream_;
};

// The same numbers read one after another, where the order of use is fixed by the caller.
class RngCursor {
 public:
  RngCursor(uint64_t seed, uint64_t stream) : rng_(seed, stream) {}
  uint64_t below(uint64_t limit) { return rng_.below(n_++, limit); }
  float uniform() { return rng_.uniform(n_++); }

 private:
  Rng rng_;
  uint64_t n_ = 0;
};

}  // namespace tandem
