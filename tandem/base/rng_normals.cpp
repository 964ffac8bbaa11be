// Many normals at once: the arithmetic of normal_numbers.h in loops over the blocks of a batch, which the
// compiler turns into vectors, once for each width. Nothing is contracted, so every width gives the same
// bits.
#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/normal_numbers.h"
#include "tandem/base/rng.h"

namespace tandem {
namespace {

constexpr int kBatch = 64;  // blocks

struct Batch {
  uint32_t word[4][kBatch];
  float normal[4][kBatch];
};

[[gnu::always_inline]] inline void fill(uint64_t seed, uint64_t stream, uint64_t first_block, Batch& batch) {
  auto& [word, normal] = batch;
  for (int i = 0; i < kBatch; ++i) {
    const uint64_t counter = first_block + static_cast<uint64_t>(i);
    word[0][i] = static_cast<uint32_t>(counter);
    word[1][i] = static_cast<uint32_t>(counter >> 32);
    word[2][i] = static_cast<uint32_t>(stream);
    word[3][i] = static_cast<uint32_t>(stream >> 32);
  }
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round, k0 += kPhiloxStep0, k1 += kPhiloxStep1) {
    for (int i = 0; i < kBatch; ++i) philox_round(word[0][i], word[1][i], word[2][i], word[3][i], k0, k1);
  }
  for (int pair = 0; pair < 4; pair += 2) {
    for (int i = 0; i < kBatch; ++i)
      normal_pair(word[pair][i], word[pair + 1][i], normal[pair][i], normal[pair + 1][i]);
  }
}

void fill_plain(uint64_t seed, uint64_t stream, uint64_t first_block, Batch& batch) {
  fill(seed, stream, first_block, batch);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void fill_avx2(uint64_t seed, uint64_t stream, uint64_t first_block, Batch& batch) {
  fill(seed, stream, first_block, batch);
}
[[gnu::target("avx512f,avx512dq,avx512vl,prefer-vector-width=512")]] void fill_avx512(uint64_t seed,
                                                                                      uint64_t stream,
                                                                                      uint64_t first_block,
                                                                                      Batch& batch) {
  fill(seed, stream, first_block, batch);
}
#endif

auto choose_fill() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) return fill_avx512;
  if (__builtin_cpu_supports("avx2")) return fill_avx2;
#endif
  return fill_plain;
}

}  // namespace

void Rng::normals(uint64_t first_block, std::span<float> out) const {
  TANDEM_CHECK(out.size() % 4 == 0);
  static const auto fill_batch = choose_fill();
  Batch batch;
  for (size_t at = 0; at < out.size(); at += 4 * kBatch, first_block += kBatch) {
    fill_batch(seed_, stream_, first_block, batch);
    const size_t blocks = std::min<size_t>(kBatch, (out.size() - at) / 4);
    for (size_t block = 0; block < blocks; ++block) {
      for (size_t i = 0; i < 4; ++i) out[at + 4 * block + i] = batch.normal[i][block];
    }
  }
}

}  // namespace tandem
