// A keyed permutation of [0, n) that stores nothing per element: a Feistel network over the next power of
// two, walked again while it lands outside [0, n). Each key gives another order.
#pragma once

#include <cstdint>

namespace tandem {

class Permutation {
 public:
  Permutation(int64_t n, uint64_t key);  // n >= 1
  int64_t operator()(int64_t index) const;

 private:
  int64_t n_;
  uint64_t key_;
  int low_bits_, high_bits_;
};

}  // namespace tandem
