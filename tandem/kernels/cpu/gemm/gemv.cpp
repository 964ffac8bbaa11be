#include "tandem/kernels/cpu/gemm/gemv.h"

#include <algorithm>
#include <array>

#include "tandem/base/error.h"
#include "tandem/kernels/cpu/gemm/gemm_engine.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/gemm/gemv.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace gemv {

// Two vectors of weights. Those of bf16 come from one load: as words of 32 bits, the elements at odd places
// are fp32 once the lower half is cleared, those at even places once they are shifted up.
struct Pair {
  FloatVec first, second;
};
template <typename S>
HWY_INLINE Pair load_pair(FloatTag d, const S* src) {
  return {load_float(d, src), load_float(d, src + hn::Lanes(d))};
}
HWY_INLINE Pair load_pair(FloatTag d, const BFloat16* src) {
  const hn::RebindToUnsigned<FloatTag> d32;
  const auto words = hn::LoadU(d32, reinterpret_cast<const uint32_t*>(src));
  return {hn::BitCast(d, hn::ShiftLeft<16>(words)),
          hn::BitCast(d, hn::And(words, hn::Set(d32, 0xffff0000u)))};
}

// The place in a pair of vectors of its element i.
template <typename S>
HWY_INLINE size_t place_in_pair(size_t i, size_t lanes) {
  return std::is_same_v<S, BFloat16> ? i % 2 * lanes + i / 2 : i;
}

// x as fp32, in the order in which weights are loaded: by pairs of vectors, then as it is.
template <typename S>
HWY_ATTR void spread(const S* x, size_t k, float* dst) {
  const size_t lanes = hn::Lanes(FloatTag()), pair = 2 * lanes, whole = k / pair * pair;
  for (size_t i = 0; i < whole; ++i)
    dst[i / pair * pair + place_in_pair<S>(i % pair, lanes)] = scalar_float(x[i]);
  for (size_t i = whole; i < k; ++i) dst[i] = scalar_float(x[i]);
  std::fill(dst + k, dst + whole + pair, 0.0f);
}

// w . x, with four running sums.
template <typename S>
HWY_ATTR HWY_INLINE float dot(const S* w, const float* x, size_t k) {
  const FloatTag d;
  const size_t lanes = hn::Lanes(d), pair = 2 * lanes;
  FloatVec sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  size_t i = 0;
  for (; i + 2 * pair <= k; i += 2 * pair) {
    const Pair a = load_pair(d, w + i), b = load_pair(d, w + i + pair);
    sum0 = hn::MulAdd(a.first, hn::Load(d, x + i), sum0);
    sum1 = hn::MulAdd(a.second, hn::Load(d, x + i + lanes), sum1);
    sum2 = hn::MulAdd(b.first, hn::Load(d, x + i + pair), sum2);
    sum3 = hn::MulAdd(b.second, hn::Load(d, x + i + pair + lanes), sum3);
  }
  for (; i + pair <= k; i += pair) {
    const Pair a = load_pair(d, w + i);
    sum0 = hn::MulAdd(a.first, hn::Load(d, x + i), sum0);
    sum1 = hn::MulAdd(a.second, hn::Load(d, x + i + lanes), sum1);
  }
  for_each_vector(k - i, [&](size_t j, auto part) {
    sum2 = hn::MulAdd(load_float(d, w + i + j, part), hn::LoadU(d, x + i + j), sum2);
  });
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

template <typename S>
HWY_ATTR void rows(const cpu::GemmArgs& args, int64_t begin, int64_t end, const float* x, int64_t x_stride,
                   float* sums) {
  const auto k = static_cast<size_t>(args.k);
  for (int64_t row = begin; row < end; ++row) {
    const S* w = static_cast<const S*>(args.b.data) + row * args.k;
    for (int64_t m = 0; m < args.m; ++m) sums[m * (end - begin) + row - begin] = dot(w, x + m * x_stride, k);
  }
}

}  // namespace gemv

void gemv_spread(const cpu::GemmArgs& args, int64_t row, float* dst) {
  const auto spread_row = [&]<typename S>(const S* x) {
    gemv::spread(x + row * args.a.row_stride, static_cast<size_t>(args.k), dst);
  };
  switch (args.a.dtype) {
    case DType::BF16: return spread_row(static_cast<const BFloat16*>(args.a.data));
    case DType::F16: return spread_row(static_cast<const Half*>(args.a.data));
    default: return spread_row(static_cast<const float*>(args.a.data));
  }
}

void gemv_rows(const cpu::GemmArgs& args, int64_t begin, int64_t end, const float* x, int64_t x_stride,
               float* sums) {
  switch (args.b.dtype) {
    case DType::BF16: return gemv::rows<BFloat16>(args, begin, end, x, x_stride, sums);
    case DType::F16: return gemv::rows<Half>(args, begin, end, x, x_stride, sums);
    default: return gemv::rows<float>(args, begin, end, x, x_stride, sums);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(gemv_spread);
HWY_EXPORT(gemv_rows);

namespace cpu {
namespace {

constexpr int64_t kTaskBytes = 64 << 10;  // of weights: enough to be worth a task's start
constexpr int64_t kMaxTaskRows = 512;
constexpr int64_t kPadding = 64;  // floats: a pair of the widest vectors, and more

int64_t x_stride(int64_t k) { return (k + 2 * kPadding - 1) / kPadding * kPadding; }

}  // namespace

size_t gemv_workspace(const GemmShape& shape) {
  return static_cast<size_t>(shape.m * x_stride(shape.k)) * sizeof(float);
}

void gemv(const GemmArgs& args, std::span<std::byte> workspace, ThreadPool& pool) {
  TANDEM_CHECK(args.m <= kGemvRows && args.b.row_stride == 1 && args.b.col_stride == args.k &&
                   args.a.col_stride == 1 && args.a.dtype == args.b.dtype && !args.accumulate,
               "no product for gemv");
  const int64_t stride = x_stride(args.k);
  TANDEM_CHECK(workspace.size() >= static_cast<size_t>(args.m * stride) * sizeof(float));
  float* const x = reinterpret_cast<float*>(workspace.data());
  for (int64_t m = 0; m < args.m; ++m) HWY_DYNAMIC_DISPATCH(gemv_spread)(args, m, x + m * stride);

  const int64_t row_bytes = std::max<int64_t>(1, args.k * dtype_bytes(args.b.dtype));
  const int64_t step = std::clamp<int64_t>(kTaskBytes / row_bytes, 1, kMaxTaskRows);
  const auto rows = HWY_DYNAMIC_DISPATCH(gemv_rows);
  const auto finish = gemm_finish(args.isa);
  const auto at = [&](void* data, int64_t column) -> void* {
    return data == nullptr ? nullptr : static_cast<std::byte*>(data) + column * dtype_bytes(args.c_dtype);
  };
  pool.parallel_for((args.n + step - 1) / step, [&](int64_t task, int) {
    const int64_t begin = task * step, end = std::min(args.n, begin + step);
    alignas(64) std::array<float, kGemvRows * kMaxTaskRows> sums;
    rows(args, begin, end, x, stride, sums.data());
    const void* bias = nullptr;
    if (args.bias != nullptr)
      bias = static_cast<const std::byte*>(args.bias) + begin * dtype_bytes(args.a.dtype);
    finish({.sums = sums.data(),
            .sums_stride = end - begin,
            .rows = args.m,
            .cols = end - begin,
            .c = at(args.c, begin),
            .c_stride = args.ldc,
            .c_dtype = args.c_dtype,
            .accumulate = false,
            .bias = bias,
            .bias_dtype = args.a.dtype,
            .pre = at(args.pre, begin)});
  });
}

}  // namespace cpu
}  // namespace tandem
#endif
