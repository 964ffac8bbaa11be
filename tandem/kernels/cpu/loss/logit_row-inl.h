// One row of logits: its maximum and its sum of exponentials in one pass. A block small enough for the L1
// cache is read for its maximum, then again for the sum under the largest maximum so far, and a larger
// maximum rescales what was summed before. Included once per target from within foreach_target, hence the
// toggled guard.
#if defined(TANDEM_KERNELS_CPU_LOGIT_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_LOGIT_ROW_INL_H_
#undef TANDEM_KERNELS_CPU_LOGIT_ROW_INL_H_
#else
#define TANDEM_KERNELS_CPU_LOGIT_ROW_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "tandem/kernels/cpu/pointwise/exp-inl.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {

inline constexpr size_t kLogitBlock = 2048;

HWY_INLINE FloatVec or_lowest(FloatTag, FloatVec v, Whole) { return v; }
HWY_INLINE FloatVec or_lowest(FloatTag d, FloatVec v, Part part) {
  return hn::IfThenElse(hn::FirstN(d, part.count), v, hn::Set(d, -std::numeric_limits<float>::infinity()));
}

template <typename S>
float block_max(const S* src, size_t n) {
  const FloatTag d;
  auto largest = hn::Set(d, -std::numeric_limits<float>::infinity());
  for_each_vector(n, [&](size_t i, auto part) {
    largest = hn::Max(largest, or_lowest(d, load_float(d, src + i, part), part));
  });
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

struct RowMass {
  float largest;
  double sum;    // of exp(logit - largest)
  size_t block;  // where the block begins that holds the first of the largest
};

template <typename S>
RowMass row_mass(const S* row, size_t vocab) {
  const FloatTag d;
  RowMass mass{-std::numeric_limits<float>::infinity(), 0, 0};
  for (size_t begin = 0; begin < vocab; begin += kLogitBlock) {
    const S* block = row + begin;
    const size_t n = std::min(kLogitBlock, vocab - begin);
    const float largest = std::max(mass.largest, block_max(block, n));
    if (largest > mass.largest) {
      mass.sum *= std::exp(static_cast<double>(mass.largest) - largest);
      mass.largest = largest;
      mass.block = begin;
    }
    // While all logits are -inf there is nothing to sum, but a NaN among them must still reach the sum.
    const auto shift = hn::Set(d, std::isinf(largest) && largest < 0 ? 0.0f : largest);
    mass.sum += sum_of_vectors(
        n, [&](size_t i, auto part) { return fast_exp(d, hn::Sub(load_float(d, block + i, part), shift)); });
  }
  return mass;
}

template <typename S>
double row_mean(const S* row, size_t vocab) {
  const FloatTag d;
  double sum = 0;
  for (size_t begin = 0; begin < vocab; begin += kLogitBlock) {
    sum += sum_of_vectors(std::min(kLogitBlock, vocab - begin),
                          [&](size_t i, auto part) { return load_float(d, row + begin + i, part); });
  }
  return sum / static_cast<double>(vocab);
}

// logit -> exp(logit - shift) * factor - less, in place.
template <typename S>
HWY_INLINE void exp_row(S* row, size_t vocab, float shift, float factor, float less = 0) {
  const FloatTag d;
  const auto shifts = hn::Set(d, shift), factors = hn::Set(d, factor), lesses = hn::Set(d, less);
  for_each_vector(vocab, [&](size_t i, auto part) {
    const auto mass_at = fast_exp(d, hn::Sub(load_float(d, row + i, part), shifts));
    store_float(d, hn::Sub(hn::Mul(mass_at, factors), lesses), row + i, part);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#endif
