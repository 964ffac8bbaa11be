// How far apart two tensors of one shape and type are: whether a difference is rounding or another model.
#pragma once

#include <cstdint>
#include <string_view>

#include "tandem/checkpoint/manifest.h"

namespace tandem {

class ThreadPool;

struct ValueDifference {
  int64_t elems = 0;
  int64_t unequal = 0;     // by their bits
  double largest = 0;      // of |a - b|; NaN where one of a pair is NaN
  double largest_abs = 0;  // of |a| and |b|, of those that are numbers
  // 1e-7 is rounding in fp32, 1 is another tensor.
  double relative() const { return largest == 0 ? 0 : largest / largest_abs; }
};

// Reads the tensor of that name, which both have with one shape and type, a bounded part at a time.
ValueDifference measure_difference(const Manifest& a, const Manifest& b, std::string_view tensor,
                                   ThreadPool* pool = nullptr);

}  // namespace tandem
