// Rows of any length through one vector function: the last, partial vector of a row goes through a
// zero-padded copy and then the very same arithmetic, so that an element's bits do not depend on where a
// row was cut. Included once per target from within foreach_target, hence the toggled guard.
#if defined(TANDEM_KERNELS_CPU_POINTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_POINTWISE_INL_H_
#undef TANDEM_KERNELS_CPU_POINTWISE_INL_H_
#else
#define TANDEM_KERNELS_CPU_POINTWISE_INL_H_
#endif

#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "tandem/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {

// How many elements of a vector are real: all of them, or the first `count`.
struct Whole {};
struct Part {
  size_t count;
};

template <typename S>
HWY_INLINE FloatVec load_float(FloatTag d, const S* src, Whole) {
  return load_float(d, src);
}
template <typename S>
HWY_INLINE FloatVec load_float(FloatTag d, const S* src, Part part) {
  alignas(64) S padded[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, src, part.count * sizeof(S));
  return load_float(d, padded);
}

template <typename S>
HWY_INLINE void store_float(FloatTag d, FloatVec v, S* dst, Whole) {
  store_float(d, v, dst);
}
template <typename S>
HWY_INLINE void store_float(FloatTag d, FloatVec v, S* dst, Part part) {
  alignas(64) S padded[HWY_MAX_BYTES / sizeof(float)];
  store_float(d, v, padded);
  std::memcpy(dst, padded, part.count * sizeof(S));
}

// Zeroes what is not real, before a sum over lanes.
HWY_INLINE FloatVec keep_real(FloatTag, FloatVec v, Whole) { return v; }
HWY_INLINE FloatVec keep_real(FloatTag d, FloatVec v, Part part) {
  return hn::IfThenElseZero(hn::FirstN(d, part.count), v);
}

// Makes what is not real the lowest number, before a maximum over lanes.
HWY_INLINE FloatVec lowered(FloatTag, FloatVec v, Whole) { return v; }
HWY_INLINE FloatVec lowered(FloatTag d, FloatVec v, Part part) {
  return hn::IfThenElse(hn::FirstN(d, part.count), v, hn::Set(d, -std::numeric_limits<float>::max()));
}

// The value a store and a load would give.
template <typename S>
HWY_INLINE FloatVec round_to(FloatTag d, FloatVec v) {
  if constexpr (std::is_same_v<S, float>) {
    return v;
  } else {
    alignas(64) S rounded[HWY_MAX_BYTES / sizeof(float)];
    store_float(d, v, rounded);
    return load_float(d, rounded);
  }
}

// body(index, part) for each vector of a row.
template <typename Body>
HWY_INLINE void for_each_vector(size_t n, const Body& body) {
  const size_t lanes = hn::Lanes(FloatTag());
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, Whole{});
  if (i < n) body(i, Part{n - i});
}

// The sum of term(index, part) over a row. Four running sums hide the latency of the additions.
template <typename Term>
HWY_INLINE float sum_of_vectors(size_t n, const Term& term) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d);
  FloatVec sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sum0 = hn::Add(sum0, term(i, Whole{}));
    sum1 = hn::Add(sum1, term(i + lanes, Whole{}));
    sum2 = hn::Add(sum2, term(i + 2 * lanes, Whole{}));
    sum3 = hn::Add(sum3, term(i + 3 * lanes, Whole{}));
  }
  for (; i + lanes <= n; i += lanes) sum0 = hn::Add(sum0, term(i, Whole{}));
  if (i < n) sum1 = hn::Add(sum1, keep_real(d, term(i, Part{n - i}), Part{n - i}));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#endif
