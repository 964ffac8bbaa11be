// Gradients of LayerNorm and RmsNorm as one template. Included once per target from within foreach_target,
// hence the toggled guard.
#if defined(TANDEM_KERNELS_CPU_NORM_KERNELS_GRAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_NORM_KERNELS_GRAD_INL_H_
#undef TANDEM_KERNELS_CPU_NORM_KERNELS_GRAD_INL_H_
#else
#define TANDEM_KERNELS_CPU_NORM_KERNELS_GRAD_INL_H_
#endif

#include "tandem/kernels/cpu/norm/norm_kernels-inl.h"
#include "tandem/kernels/cpu/pointwise/bias_grad.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {

template <NormKind kKind, typename S>
HWY_INLINE FloatVec centered_at(FloatTag d, const S* x, RowStats stats, size_t i, auto part) {
  const auto v = load_float(d, x + i, part);
  if constexpr (kKind == NormKind::Layer) return hn::Sub(v, hn::Set(d, stats.mean));
  return v;
}

// The rows of a norm's gradient, with g = dy gamma: dx = rstd (g - mean(g) - xhat mean(g xhat)), and
// without mean(g) for RmsNorm. `dx` may be `dy`.
template <typename S>
struct NormGradRows {
  const S* dy;
  const S* x;
  const S* dres;  // added after dx was rounded to S, as a separate Add would; may be null
  S* dx;
  const float* gamma;
  const float* mean;  // null for RmsNorm
  const float* rstd;
  size_t width;
  float* dgamma;  // running sums over rows
  float* dbeta;   // null for RmsNorm

  RowStats stats(size_t row) const { return {mean == nullptr ? 0.0f : mean[row], rstd[row]}; }
};

struct GradMeans {
  float g;
  float g_xhat;
};

template <NormKind kKind, typename S>
HWY_INLINE GradMeans grad_means(const NormGradRows<S>& rows, size_t row) {
  const FloatTag d;
  const S* dy = rows.dy + row * rows.width;
  const S* x = rows.x + row * rows.width;
  const RowStats stats = rows.stats(row);
  const float inv_width = 1.0f / static_cast<float>(rows.width);
  FloatVec sum_g = hn::Zero(d);
  const float sum_g_x = sum_of_vectors(rows.width, [&](size_t i, auto part) {
    const auto g = hn::Mul(load_float(d, dy + i, part), load_float(d, rows.gamma + i, part));
    if constexpr (kKind == NormKind::Layer) sum_g = hn::Add(sum_g, g);  // padding is zero
    return hn::Mul(g, centered_at<kKind>(d, x, stats, i, part));
  });
  return {hn::GetLane(hn::SumOfLanes(d, sum_g)) * inv_width, sum_g_x * stats.rstd * inv_width};
}

// kRows rows together, so that the running sums are read and written once for all of them. They are
// still added in order: the result does not depend on kRows.
template <NormKind kKind, bool kResidual, size_t kRows, typename S>
HWY_INLINE void norm_grad_rows(const NormGradRows<S>& rows, size_t first_row) {
  const FloatTag d;
  RowStats stats[kRows];
  GradMeans means[kRows];
  for (size_t k = 0; k < kRows; ++k) {
    stats[k] = rows.stats(first_row + k);
    means[k] = grad_means<kKind>(rows, first_row + k);
  }
  for_each_vector(rows.width, [&](size_t i, auto part) {
    const auto gamma = load_float(d, rows.gamma + i, part);
    auto dgamma = load_float(d, rows.dgamma + i, part);
    auto dbeta = hn::Zero(d);
    if constexpr (kKind == NormKind::Layer) dbeta = load_float(d, rows.dbeta + i, part);
    for (size_t k = 0; k < kRows; ++k) {
      const size_t row = (first_row + k) * rows.width;
      const auto dy = load_float(d, rows.dy + row + i, part);
      const auto xhat =
          hn::Mul(centered_at<kKind>(d, rows.x + row, stats[k], i, part), hn::Set(d, stats[k].rstd));
      dgamma = hn::MulAdd(dy, xhat, dgamma);
      auto g = hn::Mul(dy, gamma);
      if constexpr (kKind == NormKind::Layer) {
        dbeta = hn::Add(dbeta, dy);
        g = hn::Sub(g, hn::Set(d, means[k].g));
      }
      auto dx = hn::Mul(hn::NegMulAdd(xhat, hn::Set(d, means[k].g_xhat), g), hn::Set(d, stats[k].rstd));
      if constexpr (kResidual) dx = hn::Add(round_to<S>(d, dx), load_float(d, rows.dres + row + i, part));
      store_float(d, dx, rows.dx + row + i, part);
    }
    store_float(d, dgamma, rows.dgamma + i, part);
    if constexpr (kKind == NormKind::Layer) store_float(d, dbeta, rows.dbeta + i, part);
  });
}

template <NormKind kKind, typename S>
void norm_grad_chunk(const NormGradRows<S>& rows, size_t begin, size_t end) {
  constexpr size_t kGroup = 4;
  size_t row = begin;
  if (rows.dres != nullptr) {
    for (; row + kGroup <= end; row += kGroup) norm_grad_rows<kKind, true, kGroup>(rows, row);
    for (; row < end; ++row) norm_grad_rows<kKind, true, 1>(rows, row);
  } else {
    for (; row + kGroup <= end; row += kGroup) norm_grad_rows<kKind, false, kGroup>(rows, row);
    for (; row < end; ++row) norm_grad_rows<kKind, false, 1>(rows, row);
  }
}

// dy, x, gamma [, mean], rstd, acc_dgamma [, acc_dbeta] [, dres] -> dx, dgamma! [, dbeta!]
template <NormKind kKind>
void run_norm_grad(const KernelArgs& args, Stream& stream) {
  constexpr size_t kLayer = kKind == NormKind::Layer ? 1 : 0;
  constexpr size_t kRstd = 3 + kLayer, kDgamma = kRstd + 1, kDres = kDgamma + 1 + kLayer;
  const TensorArg& dy = args.in[0];
  const int64_t width = dy.type.shape.last();
  const cpu::RowChunks chunks(dy.type.shape.rows());
  const int64_t stride = width * static_cast<int64_t>(1 + kLayer);
  float* partials = reinterpret_cast<float*>(args.workspace.data());  // [chunk][dgamma, dbeta][width]
  float* gamma_scratch = partials + chunks.count * stride;
  cpu::with_storage(dy.type.dtype, [&]<typename S>(S) {
    const float* gamma = params_as_float(args.in[2].as<S>(), width, gamma_scratch, cpu::adds_one(args.attrs));
    stream.pool().parallel_for(chunks.count, [&](int64_t chunk, int) {
      float* sums = partials + chunk * stride;
      std::fill_n(sums, stride, 0.0f);
      const NormGradRows<S> rows{
          .dy = dy.as<S>(),
          .x = args.in[1].as<S>(),
          .dres = args.in.size() > kDres ? args.in[kDres].as<S>() : nullptr,
          .dx = args.out[0].as<S>(),
          .gamma = gamma,
          .mean = kLayer ? args.in[3].as<float>() : nullptr,
          .rstd = args.in[kRstd].as<float>(),
          .width = static_cast<size_t>(width),
          .dgamma = sums,
          .dbeta = kLayer ? sums + width : nullptr,
      };
      norm_grad_chunk<kKind>(rows, static_cast<size_t>(chunks.begin(chunk)),
                             static_cast<size_t>(chunks.end(chunk)));
    });
  });
  for (size_t k = 0; k <= kLayer; ++k) {
    cpu::add_partials(partials + static_cast<int64_t>(k) * width, chunks.count, stride, args.in[kDgamma + k],
                      args.out[1 + k], stream);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#endif
