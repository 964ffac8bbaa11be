#include "tandem/kernels/cpu/conv/conv_pairs.h"

#include <immintrin.h>

#include <cstring>

#include "tandem/base/error.h"
#include "tandem/kernels/cpu/cpu_features.h"

#pragma GCC push_options
#pragma GCC target("avx512bf16,avx512f,avx512vl,avx512dq,avx512bw,avx512cd,avx2,fma")

namespace tandem::cpu {
namespace {

constexpr int kLanes = 16, kRows = 8;  // the tile of conv_tile.cpp on AVX-512
static_assert(kRows <= kConvPixels);

inline __m512 load_sums(const float* src) { return _mm512_loadu_ps(src); }
inline __m512bh load_pairs(const float* src) { return reinterpret_cast<__m512bh>(_mm512_loadu_ps(src)); }
inline __m512bh broadcast_pair(const void* src) {
  int pair;
  std::memcpy(&pair, src, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

template <int kVecs>
void tile(const ConvTileArgs& args) {
  __m512 sums[kRows][kVecs];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v)
      sums[m][v] = args.add ? load_sums(args.sums + m * args.sums_pitch + v * kLanes) : _mm512_setzero_ps();
  }
  const float* weights = args.weights;
  for (int64_t r = 0; r < args.kernel_rows; ++r) {
    const uint16_t* pixels[kRows];
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m)
      pixels[m] = static_cast<const uint16_t*>(args.pixels[m]) + r * args.row_pitch;
    const int64_t run = args.run;
    for (int64_t k = 0; k < run; ++k, weights += kVecs * kLanes) {
      __m512bh w[kVecs];
#pragma GCC unroll 3
      for (int v = 0; v < kVecs; ++v) w[v] = load_pairs(weights + v * kLanes);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        const __m512bh x = broadcast_pair(pixels[m] + 2 * k);
#pragma GCC unroll 3
        for (int v = 0; v < kVecs; ++v) sums[m][v] = _mm512_dpbf16_ps(sums[m][v], w[v], x);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v)
      _mm512_storeu_ps(args.sums + m * args.sums_pitch + v * kLanes, sums[m][v]);
  }
}

template <int kVecs>
void grad_tile(const ConvGradTileArgs& args) {
  __m512 sums[kRows][kVecs];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) sums[m][v] = load_sums(args.sums + m * args.sums_pitch + v * kLanes);
  }
  const float* dy = args.dy;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_row_pitch;
    for (int64_t col = 0; col < args.cols; ++col, x += args.x_col_pitch, dy += args.dy_pitch) {
      __m512bh values[kVecs];
#pragma GCC unroll 3
      for (int v = 0; v < kVecs; ++v) values[v] = load_pairs(x + v * kLanes);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        const __m512bh g = broadcast_pair(dy + m);
#pragma GCC unroll 3
        for (int v = 0; v < kVecs; ++v) sums[m][v] = _mm512_dpbf16_ps(sums[m][v], values[v], g);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v)
      _mm512_storeu_ps(args.sums + m * args.sums_pitch + v * kLanes, sums[m][v]);
  }
}

}  // namespace

bool conv_uses_pairs(DType dtype) {
  if (dtype != DType::BF16 || selected_isa() < Isa::Avx512Bf16) return false;
  const ConvTileSize tile = conv_tile_size();
  TANDEM_CHECK(tile.lanes == kLanes && tile.rows == kRows && tile.vecs == 3);
  return true;
}

void conv_pair_tile(const ConvTileArgs& args) {
  switch (args.vecs) {
    case 1: return tile<1>(args);
    case 2: return tile<2>(args);
    default: return tile<3>(args);
  }
}

void conv_pair_grad_tile(const ConvGradTileArgs& args) {
  switch (args.vecs) {
    case 1: return grad_tile<1>(args);
    case 2: return grad_tile<2>(args);
    default: return grad_tile<3>(args);
  }
}

void conv_make_pairs(const void* lo, const void* hi, int64_t count, float* dst) {
  const auto* low = static_cast<const uint16_t*>(lo);
  const auto* high = static_cast<const uint16_t*>(hi);
  for (int64_t i = 0; i < count; i += kLanes) {
    const auto mask = static_cast<__mmask16>(count - i >= kLanes ? 0xffff : (1u << (count - i)) - 1);
    __m512i pair = _mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(mask, low + i));
    if (high != nullptr) {
      const __m512i upper = _mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(mask, high + i));
      pair = _mm512_or_si512(pair, _mm512_maskz_slli_epi32(mask, upper, 16));
    }
    _mm512_mask_storeu_epi32(dst + i, mask, pair);
  }
}

}  // namespace tandem::cpu

#pragma GCC pop_options
