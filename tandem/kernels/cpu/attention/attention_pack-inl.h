// Moves one head between packed storage of type S and fp32 scratch: rows as they are, or transposed in
// blocks of kKeyBlock rows.
#if defined(TANDEM_KERNELS_CPU_ATTENTION_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_ATTENTION_PACK_INL_H_
#undef TANDEM_KERNELS_CPU_ATTENTION_PACK_INL_H_
#else
#define TANDEM_KERNELS_CPU_ATTENTION_PACK_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "tandem/kernels/cpu/attention/attention.h"
#include "tandem/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace attention {
using namespace cpu::attention;

// dst[padded_rows, ld] = factor * src[rows, width], padded with zeros.
template <typename S>
HWY_ATTR void pack_rows(const S* src, int64_t src_stride, int64_t rows, int64_t padded_rows, int64_t width,
                        float factor, float* dst, int64_t ld) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, factor);
  for (int64_t row = 0; row < rows; ++row, src += src_stride, dst += ld) {
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) hn::Store(hn::Mul(load_float(d, src + i), scale), d, dst + i);
    for (; i < width; ++i) dst[i] = scalar_float(src[i]) * factor;
    for (; i < ld; ++i) dst[i] = 0.0f;
  }
  if (padded_rows > rows) std::fill(dst, dst + (padded_rows - rows) * ld, 0.0f);
}

// dst[rows, width] = factor * src[rows, ld]
template <typename S>
HWY_ATTR void unpack_rows(const float* src, int64_t ld, int64_t rows, int64_t width, float factor, S* dst,
                          int64_t dst_stride) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, factor);
  for (int64_t row = 0; row < rows; ++row, src += ld, dst += dst_stride) {
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) store_float(d, hn::Mul(hn::Load(d, src + i), scale), dst + i);
    for (; i < width; ++i) store_scalar(src[i] * factor, dst + i);
  }
}

// Four rows of one vector each into columns column .. column + 3 of dst: a 4 x 4 transpose inside every
// 128-bit block, whose rows are then stored apart.
#if HWY_TARGET != HWY_SCALAR
HWY_INLINE void transpose_four(FloatTag d, FloatVec r0, FloatVec r1, FloatVec r2, FloatVec r3, float* dst) {
  const hn::RepartitionToWide<FloatTag> d64;
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  constexpr size_t kLanes = hn::MaxLanes(FloatTag());
  alignas(64) float columns[4][kLanes];
  hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, columns[0]);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, columns[1]);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, columns[2]);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, columns[3]);
  const hn::Full128<float> d128;
  for (size_t i = 0; i < kLanes; ++i) {
    hn::Store(hn::Load(d128, columns[i % 4] + i / 4 * 4), d128, dst + static_cast<int64_t>(i) * kScoreStride);
  }
}
#endif

// dst[width, kScoreStride] = the transpose of src[rows, width], which fills `rows` columns.
template <typename S>
HWY_ATTR void transpose_rows(const S* src, int64_t src_stride, int64_t rows, int64_t width, float* dst) {
  int64_t row = 0;
#if HWY_TARGET != HWY_SCALAR
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; row + 4 <= rows; row += 4) {
    const S* r0 = src + row * src_stride;
    const S* r1 = r0 + src_stride;
    const S* r2 = r1 + src_stride;
    const S* r3 = r2 + src_stride;
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) {
      transpose_four(d, load_float(d, r0 + i), load_float(d, r1 + i), load_float(d, r2 + i),
                     load_float(d, r3 + i), dst + i * kScoreStride + row);
    }
    for (; i < width; ++i) {
      float* column = dst + i * kScoreStride + row;
      column[0] = scalar_float(r0[i]);
      column[1] = scalar_float(r1[i]);
      column[2] = scalar_float(r2[i]);
      column[3] = scalar_float(r3[i]);
    }
  }
#endif
  for (; row < rows; ++row) {
    for (int64_t i = 0; i < width; ++i) dst[i * kScoreStride + row] = scalar_float(src[row * src_stride + i]);
  }
}

// Rows begin .. end - 1 of src, transposed, into their places in a sequence of blocks of kKeyBlock columns.
// Columns never packed hold garbage; the mask hides what it leads to.
template <typename S>
HWY_ATTR void pack_transposed(const S* src, int64_t src_stride, int64_t begin, int64_t end, int64_t width,
                              float* dst) {
  for (int64_t row = begin; row < end;) {
    const int64_t column = row % kKeyBlock;
    const int64_t count = std::min(kKeyBlock - column, end - row);
    transpose_rows(src + row * src_stride, src_stride, count, width,
                   dst + row / kKeyBlock * width * kScoreStride + column);
    row += count;
  }
}

}  // namespace attention
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#endif
