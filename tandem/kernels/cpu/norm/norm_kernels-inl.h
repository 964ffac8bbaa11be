// LayerNorm and RmsNorm, alone or after a residual Add, as one template: RmsNorm is LayerNorm about zero
// and without beta. The fused form stores the rounded sum and normalises what it stored, so that it gives
// the bits of the two ops one after the other.
// Included once per target from within foreach_target, hence the toggled guard.
#if defined(TANDEM_KERNELS_CPU_NORM_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_NORM_KERNELS_INL_H_
#undef TANDEM_KERNELS_CPU_NORM_KERNELS_INL_H_
#else
#define TANDEM_KERNELS_CPU_NORM_KERNELS_INL_H_
#endif

#include <cmath>

#include "tandem/kernels/cpu/norm/norm_kernels.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {

using cpu::NormKind;

struct RowStats {
  float mean;  // 0 for RmsNorm
  float rstd;
};

// A parameter vector in fp32, plus one where that is asked for: made in scratch once a call, where it is not
// as it should be already.
template <typename S>
const float* params_as_float(const S* params, int64_t width, float* scratch, bool plus_one = false) {
  if constexpr (std::is_same_v<S, float>) {
    if (!plus_one) return params;
  }
  const FloatTag d;
  const FloatVec plus = hn::Set(d, plus_one ? 1.0f : 0.0f);
  for_each_vector(static_cast<size_t>(width), [&](size_t i, auto part) {
    const FloatVec value = load_float(d, params + i, part);
    store_float(d, plus_one ? hn::Add(value, plus) : value, scratch + i, part);
  });
  return scratch;
}

// A row to normalise. Its first reading leaves an fp32 copy in `row`, so that a 16-bit row is converted
// once; an f32 row needs no copy.
template <typename S>
struct NormRow {
  const S* x;
  const S* b;  // added to x where not null: S(x + b), as the Add kernel gives it, goes to `sum` ..
  S* sum;      // .. and is what is normalised
  float* row;  // scratch, for 16-bit types
  const float* gamma;
  const float* beta;  // null for RmsNorm
  S* y;
};

template <bool kAdd, typename S>
HWY_INLINE FloatVec first_load(FloatTag d, const NormRow<S>& r, size_t i, auto part) {
  auto v = load_float(d, r.x + i, part);
  if constexpr (kAdd) {
    v = hn::Add(v, load_float(d, r.b + i, part));
    store_float(d, v, r.sum + i, part);
    v = round_to<S>(d, v);
  }
  if constexpr (!std::is_same_v<S, float>) store_float(d, v, r.row + i, part);
  return v;
}

// The row stays in the nearest cache, so the variance takes a second pass about the true mean.
template <NormKind kKind, bool kAdd, typename S>
HWY_INLINE RowStats norm_row(const NormRow<S>& r, size_t width, float eps) {
  const FloatTag d;
  const float* row = r.row;
  if constexpr (std::is_same_v<S, float>) row = kAdd ? r.sum : r.x;
  const float inv_width = 1.0f / static_cast<float>(width);
  float mean = 0.0f, squares;
  if constexpr (kKind == NormKind::Layer) {
    mean = inv_width *
           sum_of_vectors(width, [&](size_t i, auto part) { return first_load<kAdd>(d, r, i, part); });
    const auto center = hn::Set(d, mean);
    squares = sum_of_vectors(width, [&](size_t i, auto part) {
      const auto v = hn::Sub(load_float(d, row + i, part), center);
      return hn::Mul(v, v);
    });
  } else {
    squares = sum_of_vectors(width, [&](size_t i, auto part) {
      const auto v = first_load<kAdd>(d, r, i, part);
      return hn::Mul(v, v);
    });
  }
  const float rstd = 1.0f / std::sqrt(inv_width * squares + eps);
  const auto center = hn::Set(d, mean), scale = hn::Set(d, rstd);
  for_each_vector(width, [&](size_t i, auto part) {
    auto v = load_float(d, row + i, part);
    const auto gamma = load_float(d, r.gamma + i, part);
    if constexpr (kKind == NormKind::Layer) {
      v = hn::MulAdd(hn::Mul(hn::Sub(v, center), scale), gamma, load_float(d, r.beta + i, part));
    } else {
      v = hn::Mul(hn::Mul(v, scale), gamma);
    }
    store_float(d, v, r.y + i, part);
  });
  return {mean, rstd};
}

// x [, b], gamma [, beta] -> [sum,] y [, mean], rstd
template <NormKind kKind, bool kAdd>
void run_norm(const KernelArgs& args, Stream& stream) {
  constexpr size_t kLayer = kKind == NormKind::Layer ? 1 : 0;
  constexpr size_t kGamma = kAdd ? 2 : 1, kY = kAdd ? 1 : 0;
  const TensorArg& y = args.out[kY];
  const int64_t width = y.type.shape.last();
  const float eps = static_cast<float>(args.attrs.real("eps"));
  cpu::NormScratch scratch(args.workspace, width);
  cpu::with_storage(y.type.dtype, [&]<typename S>(S) {
    const float* gamma =
        params_as_float(args.in[kGamma].as<S>(), width, scratch.gamma, cpu::adds_one(args.attrs));
    const float* beta =
        kLayer ? params_as_float(args.in[kGamma + kLayer].as<S>(), width, scratch.beta) : nullptr;
    float* mean = kLayer ? args.out[kY + 1].as<float>() : nullptr;
    float* rstd = args.out.back().as<float>();
    cpu::for_row_groups(stream.pool(), y.type.shape.rows(), width,
                        [&](int64_t begin, int64_t end, int worker) {
                          for (int64_t row = begin; row < end; ++row) {
                            const int64_t at = row * width;
                            const NormRow<S> r{
                                .x = args.in[0].as<S>() + at,
                                .b = kAdd ? args.in[1].as<S>() + at : nullptr,
                                .sum = kAdd ? args.out[0].as<S>() + at : nullptr,
                                .row = std::is_same_v<S, float> ? nullptr : scratch.row(worker),
                                .gamma = gamma,
                                .beta = beta,
                                .y = y.as<S>() + at,
                            };
                            const RowStats stats = norm_row<kKind, kAdd>(r, static_cast<size_t>(width), eps);
                            if constexpr (kKind == NormKind::Layer) mean[row] = stats.mean;
                            rstd[row] = stats.rstd;
                          }
                        });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#endif
