// The sums read eight rows at a time, so that every row is a sequential stream and the running sums, kept
// in memory for any number of channels, are touched once per eight rows.
#include "tandem/kernels/cpu/norm/batch_norm_passes.h"

#include <algorithm>

#include "tandem/kernels/cpu/pointwise/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/norm/batch_norm_passes.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kBlockRows = 64;  // fp32 sums never run longer than this before they go to double
constexpr int kRowsAtOnce = 8;

// sum += v, element by element.
template <typename Part>
HWY_INLINE void add_to(FloatTag d, FloatVec v, float* sum, Part part) {
  store_float(d, hn::Add(load_float(d, sum, part), v), sum, part);
}

// One call adds kRows rows; fn(row, rows_type) is called for eight rows at once, then for the rest singly.
template <int kRows>
struct Rows {};
template <typename Fn>
HWY_INLINE void for_row_octets(int64_t rows, const Fn& fn) {
  int64_t r = 0;
  for (; r + kRowsAtOnce <= rows; r += kRowsAtOnce) fn(r, Rows<kRowsAtOnce>{});
  for (; r < rows; ++r) fn(r, Rows<1>{});
}

// Sums relative to the row `origin`: values far from zero keep their digits.
template <int kRows, typename S>
void add_rows(Rows<kRows>, const S* x, const S* origin, int64_t channels, float* sum) {
  const FloatTag d;
  for_each_vector(channels, [&](size_t c, auto part) HWY_ATTR {
    const FloatVec zero = load_float(d, origin + c, part);
    FloatVec even = hn::Zero(d), odd = even;
    for (int r = 0; r < kRows; ++r) {
      FloatVec& total = r % 2 ? odd : even;
      total = hn::Add(total, hn::Sub(load_float(d, x + r * channels + c, part), zero));
    }
    add_to(d, hn::Add(even, odd), sum + c, part);
  });
}

// mean = origin + sum / count
template <typename S>
void sum_to_mean(const S* origin, int64_t count, int64_t channels, float* sum) {
  const FloatTag d;
  const FloatVec inverse = hn::Set(d, 1.0f / static_cast<float>(count));
  for_each_vector(channels, [&](size_t c, auto part) HWY_ATTR {
    const FloatVec mean = hn::MulAdd(load_float(d, sum + c, part), inverse, load_float(d, origin + c, part));
    store_float(d, mean, sum + c, part);
  });
}

template <int kRows, typename S>
void add_squared_deviations(Rows<kRows>, const S* x, int64_t channels, const float* mean, float* sum) {
  const FloatTag d;
  for_each_vector(channels, [&](size_t c, auto part) HWY_ATTR {
    const FloatVec center = load_float(d, mean + c, part);
    FloatVec even = hn::Zero(d), odd = even;
    for (int r = 0; r < kRows; ++r) {
      FloatVec& total = r % 2 ? odd : even;
      const FloatVec deviation = hn::Sub(load_float(d, x + r * channels + c, part), center);
      total = hn::MulAdd(deviation, deviation, total);
    }
    add_to(d, hn::Add(even, odd), sum + c, part);
  });
}

template <int kRows, typename S>
void add_grad_sums(Rows<kRows>, const S* dy, const S* x, int64_t channels, const float* mean, float* sum_dy,
                   float* sum_dyx) {
  const FloatTag d;
  for_each_vector(channels, [&](size_t c, auto part) HWY_ATTR {
    const FloatVec center = load_float(d, mean + c, part);
    FloatVec plain = hn::Zero(d), weighted = plain;
    for (int r = 0; r < kRows; ++r) {
      const FloatVec g = load_float(d, dy + r * channels + c, part);
      plain = hn::Add(plain, g);
      weighted = hn::MulAdd(g, hn::Sub(load_float(d, x + r * channels + c, part), center), weighted);
    }
    add_to(d, plain, sum_dy + c, part);
    add_to(d, weighted, sum_dyx + c, part);
  });
}

template <typename S>
void moments(const S* x, int64_t rows, int64_t channels, float* scratch, double* mean, double* m2) {
  float* block_mean = scratch;
  float* block_m2 = scratch + channels;
  std::fill_n(mean, channels, 0.0);
  std::fill_n(m2, channels, 0.0);
  for (int64_t begin = 0; begin < rows; begin += kBlockRows) {
    const int64_t count = std::min(kBlockRows, rows - begin);
    const S* block = x + begin * channels;
    std::fill_n(scratch, 2 * channels, 0.0f);
    for_row_octets(count, [&](int64_t r, auto at_once) HWY_ATTR {
      add_rows(at_once, block + r * channels, block, channels, block_mean);
    });
    sum_to_mean(block, count, channels, block_mean);
    for_row_octets(count, [&](int64_t r, auto at_once) HWY_ATTR {
      add_squared_deviations(at_once, block + r * channels, channels, block_mean, block_m2);
    });
    const double fraction = static_cast<double>(count) / static_cast<double>(begin + count);
    const double spread = fraction * static_cast<double>(begin);
    for (int64_t c = 0; c < channels; ++c) {
      const double delta = block_mean[c] - mean[c];
      mean[c] += delta * fraction;
      m2[c] += block_m2[c] + delta * delta * spread;
    }
  }
}

template <typename S>
void normalise(const S* x, int64_t rows, int64_t channels, const float* mean, const float* scale,
               const float* shift, S* y) {
  const FloatTag d;
  for (int64_t r = 0; r < rows; ++r, x += channels, y += channels) {
    for_each_vector(channels, [&](size_t c, auto part) HWY_ATTR {
      const FloatVec deviation = hn::Sub(load_float(d, x + c, part), load_float(d, mean + c, part));
      const FloatVec v =
          hn::MulAdd(deviation, load_float(d, scale + c, part), load_float(d, shift + c, part));
      store_float(d, v, y + c, part);
    });
  }
}

template <typename S>
void grad_sums(const S* dy, const S* x, int64_t rows, int64_t channels, const float* mean, float* scratch,
               double* sum_dy, double* sum_dyx) {
  float* block_dy = scratch;
  float* block_dyx = scratch + channels;
  std::fill_n(sum_dy, channels, 0.0);
  std::fill_n(sum_dyx, channels, 0.0);
  for (int64_t begin = 0; begin < rows; begin += kBlockRows) {
    std::fill_n(scratch, 2 * channels, 0.0f);
    for_row_octets(std::min(kBlockRows, rows - begin), [&](int64_t r, auto at_once) HWY_ATTR {
      const int64_t at = (begin + r) * channels;
      add_grad_sums(at_once, dy + at, x + at, channels, mean, block_dy, block_dyx);
    });
    for (int64_t c = 0; c < channels; ++c) {
      sum_dy[c] += block_dy[c];
      sum_dyx[c] += block_dyx[c];
    }
  }
}

template <typename S>
void grad_apply(const S* dy, const S* x, int64_t rows, int64_t channels, const cpu::GradCoefficients& k,
                S* dx) {
  const FloatTag d;
  for (int64_t r = 0; r < rows; ++r, dy += channels, x += channels, dx += channels) {
    for_each_vector(channels, [&](size_t c, auto part) HWY_ATTR {
      const FloatVec deviation = hn::Sub(load_float(d, x + c, part), load_float(d, k.mean + c, part));
      const FloatVec rest = hn::MulAdd(deviation, load_float(d, k.b + c, part), load_float(d, k.c + c, part));
      store_float(d, hn::MulAdd(load_float(d, dy + c, part), load_float(d, k.a + c, part), rest), dx + c,
                  part);
    });
  }
}

void moments_of(DType dtype, const void* x, int64_t rows, int64_t channels, float* scratch, double* mean,
                double* m2) {
  cpu::with_storage(
      dtype, [&]<typename S>(S) { moments(static_cast<const S*>(x), rows, channels, scratch, mean, m2); });
}

void normalise_of(DType dtype, const void* x, int64_t rows, int64_t channels, const float* mean,
                  const float* scale, const float* shift, void* y) {
  cpu::with_storage(dtype, [&]<typename S>(S) {
    normalise(static_cast<const S*>(x), rows, channels, mean, scale, shift, static_cast<S*>(y));
  });
}

void grad_sums_of(DType dtype, const void* dy, const void* x, int64_t rows, int64_t channels,
                  const float* mean, float* scratch, double* sum_dy, double* sum_dyx) {
  cpu::with_storage(dtype, [&]<typename S>(S) {
    grad_sums(static_cast<const S*>(dy), static_cast<const S*>(x), rows, channels, mean, scratch, sum_dy,
              sum_dyx);
  });
}

void grad_apply_of(DType dtype, const void* dy, const void* x, int64_t rows, int64_t channels,
                   const cpu::GradCoefficients& k, void* dx) {
  cpu::with_storage(dtype, [&]<typename S>(S) {
    grad_apply(static_cast<const S*>(dy), static_cast<const S*>(x), rows, channels, k, static_cast<S*>(dx));
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(moments_of);
HWY_EXPORT(normalise_of);
HWY_EXPORT(grad_sums_of);
HWY_EXPORT(grad_apply_of);

namespace cpu {

void channel_moments(DType dtype, const void* x, int64_t rows, int64_t channels, float* scratch, double* mean,
                     double* m2) {
  HWY_DYNAMIC_DISPATCH(moments_of)(dtype, x, rows, channels, scratch, mean, m2);
}

void merge_moments(int64_t channels, double count, double* mean, double* m2, double count_b,
                   const double* mean_b, const double* m2_b) {
  const double fraction = count_b / (count + count_b);
  for (int64_t c = 0; c < channels; ++c) {
    const double delta = mean_b[c] - mean[c];
    mean[c] += delta * fraction;
    m2[c] += m2_b[c] + delta * delta * fraction * count;
  }
}

void channel_normalise(DType dtype, const void* x, int64_t rows, int64_t channels, const float* mean,
                       const float* scale, const float* shift, void* y) {
  HWY_DYNAMIC_DISPATCH(normalise_of)(dtype, x, rows, channels, mean, scale, shift, y);
}

void channel_grad_sums(DType dtype, const void* dy, const void* x, int64_t rows, int64_t channels,
                       const float* mean, float* scratch, double* sum_dy, double* sum_dyx) {
  HWY_DYNAMIC_DISPATCH(grad_sums_of)(dtype, dy, x, rows, channels, mean, scratch, sum_dy, sum_dyx);
}

void channel_grad_apply(DType dtype, const void* dy, const void* x, int64_t rows, int64_t channels,
                        const GradCoefficients& k, void* dx) {
  HWY_DYNAMIC_DISPATCH(grad_apply_of)(dtype, dy, x, rows, channels, k, dx);
}

}  // namespace cpu
}  // namespace tandem
#endif
