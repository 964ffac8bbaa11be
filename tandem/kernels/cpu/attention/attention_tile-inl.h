// The small products of fused attention, on fp32 blocks in scratch memory. One register tile does them all:
// the left factor is read by broadcasts and so may be transposed at no cost, the right one by rows.
//
// `reach` describes a block of scores under the causal mask: query i sees keys [0, reach + i]. Parts of a
// tile beyond every query's reach are skipped; without a mask, reach is at least the block's width. `start`
// does so for a window: query i sees no keys before start + i, and parts of a tile before every query's are
// skipped; without a window, start is so low that no query's is above 0.
#if defined(TANDEM_KERNELS_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_ATTENTION_TILE_INL_H_
#undef TANDEM_KERNELS_CPU_ATTENTION_TILE_INL_H_
#else
#define TANDEM_KERNELS_CPU_ATTENTION_TILE_INL_H_
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

// Accumulators are kTileRows x 2 vectors: 16 of the 32 registers of AVX-512, 8 of the 16 of AVX2, enough to
// cover the latency of a fused multiply-add.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int64_t kTileRows = 8;
#else
inline constexpr int64_t kTileRows = 4;
#endif
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));
inline constexpr int64_t kColumnStep = kLanes > kTileRows ? kLanes : kTileRows;

// c[kTileRows, kVecs vectors] (+)= a b over `depth` terms; a is [rows, depth], or [depth, rows] if kTransA.
template <int kVecs, bool kTransA>
HWY_INLINE void tile(int64_t depth, const float* HWY_RESTRICT a, int64_t lda, const float* HWY_RESTRICT b,
                     int64_t ldb, float* HWY_RESTRICT c, int64_t ldc, bool accumulate) {
  const FloatTag d;
  FloatVec sum[kTileRows][kVecs];
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kVecs; ++j)
      sum[i][j] = accumulate ? hn::Load(d, c + i * ldc + j * kLanes) : hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k) {
    FloatVec row[kVecs];
#pragma GCC unroll 2
    for (int j = 0; j < kVecs; ++j) row[j] = hn::Load(d, b + k * ldb + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
      const auto left = hn::Set(d, kTransA ? a[k * lda + i] : a[i * lda + k]);
#pragma GCC unroll 2
      for (int j = 0; j < kVecs; ++j) sum[i][j] = hn::MulAdd(left, row[j], sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kVecs; ++j) hn::Store(sum[i][j], d, c + i * ldc + j * kLanes);
  }
}

// A block of scores: its size and what the mask leaves of it.
struct ScoreBlock {
  int64_t queries;  // <= kQueryBlock
  int64_t keys;     // <= kKeyBlock
  int64_t reach;    // query i sees keys before min(keys, reach + i + 1) ..
  int64_t start;    // .. from max(0, start + i) on

  HWY_INLINE int64_t seen(int64_t query) const { return std::min(keys, reach + query + 1); }
  HWY_INLINE int64_t begin(int64_t query) const { return std::max<int64_t>(0, start + query); }
  // Columns of scores kept for the tile of rows that starts at `row`, from what its first query sees on ..
  HWY_INLINE int64_t first_column(int64_t row) const { return begin(row) / kColumnStep * kColumnStep; }
  // .. to what its last query sees, both in whole steps.
  HWY_INLINE int64_t columns(int64_t row) const { return round_up(seen(row + kTileRows - 1), kColumnStep); }
};

// scores[queries, keys] = rows[queries, depth] columns[depth, keys]
inline HWY_NOINLINE HWY_ATTR void score_product(const ScoreBlock& block, int64_t depth, const float* rows,
                                                int64_t ld_rows, const float* columns, float* scores) {
  for (int64_t n = block.begin(0) / (2 * kLanes) * (2 * kLanes); n < block.keys; n += 2 * kLanes) {
    const int64_t first = std::max<int64_t>(0, n - block.reach) / kTileRows * kTileRows;
    const int64_t end =
        std::min(block.queries, n + 2 * kLanes - block.start);  // the next see later keys only
    for (int64_t m = first; m < end; m += kTileRows) {
      float* dst = scores + m * kScoreStride + n;
      if (block.columns(m) - n > kLanes) {
        tile<2, false>(depth, rows + m * ld_rows, ld_rows, columns + n, kScoreStride, dst, kScoreStride,
                       false);
      } else {
        tile<1, false>(depth, rows + m * ld_rows, ld_rows, columns + n, kScoreStride, dst, kScoreStride,
                       false);
      }
    }
  }
}

// sum[queries, width] (+)= scores[queries, keys] rows[keys, width]
inline HWY_NOINLINE HWY_ATTR void query_product(const ScoreBlock& block, int64_t width, const float* scores,
                                                const float* rows, float* sum, int64_t ld, bool accumulate) {
  for (int64_t n = 0; n < width; n += 2 * kLanes) {
    for (int64_t m = 0; m < block.queries; m += kTileRows) {
      const int64_t begin = block.begin(m), depth = block.seen(m + kTileRows - 1) - begin;
      const float* left = scores + m * kScoreStride + begin;
      const float* right = rows + begin * ld + n;
      if (width - n > kLanes) {
        tile<2, false>(depth, left, kScoreStride, right, ld, sum + m * ld + n, ld, accumulate);
      } else {
        tile<1, false>(depth, left, kScoreStride, right, ld, sum + m * ld + n, ld, accumulate);
      }
    }
  }
}

// sum[keys, width] += transpose(scores)[keys, queries] rows[queries, width]
inline HWY_NOINLINE HWY_ATTR void key_product(const ScoreBlock& block, int64_t width, const float* scores,
                                              const float* rows, float* sum, int64_t ld) {
  for (int64_t n = 0; n < width; n += 2 * kLanes) {
    for (int64_t m = block.begin(0) / kTileRows * kTileRows; m < block.keys; m += kTileRows) {
      const int64_t first = std::max<int64_t>(0, m - block.reach);  // the first query that sees key m
      if (first >= block.queries) break;
      // The last one that sees a key of this tile is m + kTileRows - 1 - start.
      const int64_t count = std::min(block.queries, m + kTileRows - block.start) - first;
      const float* left = scores + first * kScoreStride + m;
      const float* right = rows + first * ld + n;
      if (width - n > kLanes) {
        tile<2, true>(count, left, kScoreStride, right, ld, sum + m * ld + n, ld, true);
      } else {
        tile<1, true>(count, left, kScoreStride, right, ld, sum + m * ld + n, ld, true);
      }
    }
  }
}

}  // namespace attention
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#endif
