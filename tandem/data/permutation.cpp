#include "tandem/data/permutation.h"

#include <bit>

#include "tandem/base/error.h"
#include "tandem/base/rng.h"

namespace tandem {

Permutation::Permutation(int64_t n, uint64_t key) : n_(n), key_(mix_bits(key + 0x9e3779b97f4a7c15ull)) {
  TANDEM_CHECK(n >= 1);
  const int bits = std::bit_width(static_cast<uint64_t>(n - 1));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
}

int64_t Permutation::operator()(int64_t index) const {
  TANDEM_CHECK(index >= 0 && index < n_);
  constexpr uint64_t kRounds = 4;  // each changes both halves
  const uint64_t low_mask = (uint64_t{1} << low_bits_) - 1, high_mask = (uint64_t{1} << high_bits_) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t low = value & low_mask, high = value >> low_bits_;
    for (uint64_t round = 0; round < kRounds; ++round) {
      high ^= mix_bits(key_ ^ mix_bits(low * 2 * kRounds + 2 * round)) & high_mask;
      low ^= mix_bits(key_ ^ mix_bits(high * 2 * kRounds + 2 * round + 1)) & low_mask;
    }
    value = high << low_bits_ | low;
  } while (value >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(value);
}

}  // namespace tandem
