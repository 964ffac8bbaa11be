// Copies blocks of A and B into split panels (gemm_split.h), 32 lines by 32 values of k at a time: read as 32
// runs along whichever way the source runs, turned by 90 degrees where the panel wants the other way, and
// split.
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 has its own intrinsics for uninitialized
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <algorithm>

#include "tandem/kernels/cpu/gemm/gemm_engine.h"
#include "tandem/kernels/cpu/gemm/gemm_split.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx512cd,avx2,fma,f16c")

namespace tandem::cpu {
namespace {

constexpr int64_t kSide = 32;  // of a block
static_assert(kSide == kSplitDepth && kSide == kSplitLines);
constexpr int64_t kAhead = 2 * kSide;  // values of a run to fetch before they are read

// 32 runs of 32 values.
struct Block {
  const float* at;
  int64_t stride;  // from one run to the next
};

// The first `valid` of 16 neighbours, reading no others; the rest are zeros.
__m512 load_first(const void* src, DType dtype, int64_t at, int64_t valid) {
  const auto mask = static_cast<__mmask16>((1u << std::clamp<int64_t>(valid, 0, 16)) - 1);
  if (dtype == DType::F32) return _mm512_maskz_loadu_ps(mask, static_cast<const float*>(src) + at);
  const __m256i bits = _mm256_maskz_loadu_epi16(mask, static_cast<const uint16_t*>(src) + at);
  if (dtype == DType::F16) return _mm512_cvtph_ps(bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// The same of values that are `step` apart.
__m512 gather_first(const void* src, DType dtype, int64_t at, int64_t step, int64_t valid) {
  if (step == 1) return load_first(src, dtype, at, valid);
  alignas(64) float values[16] = {};
  for (int64_t i = 0; i < std::min<int64_t>(valid, 16); ++i) {
    values[i] = _mm512_cvtss_f32(load_first(src, dtype, at + i * step, 1));
  }
  return _mm512_load_ps(values);
}

// The block at (line, k), zeros where it sticks out of the source. It is the source itself if that will do,
// else a copy in `spare`.
Block read_block(const PackArgs& args, int64_t line, int64_t k, bool along_k, float* spare) {
  const int64_t stride = along_k ? args.line_stride : args.k_stride;
  const int64_t step = along_k ? args.k_stride : args.line_stride;
  const int64_t runs = std::min(kSide, along_k ? args.count - line : args.k - k);
  const int64_t length = std::min(kSide, along_k ? args.k - k : args.count - line);
  const int64_t first = line * args.line_stride + k * args.k_stride;
  if (args.dtype == DType::F32 && step == 1 && runs == kSide && length == kSide) {
    const float* at = static_cast<const float*>(args.src) + first;
    for (int64_t run = 0; run < kSide; ++run) {
      __builtin_prefetch(at + run * stride + kAhead);
      __builtin_prefetch(at + run * stride + kAhead + 16);
    }
    return {at, stride};
  }
  for (int64_t run = 0; run < kSide; ++run) {
    for (int64_t i = 0; i < kSide; i += 16) {
      const int64_t valid = run < runs ? length - i : 0;
      _mm512_store_ps(spare + run * kSide + i,
                      gather_first(args.src, args.dtype, first + run * stride + i * step, step, valid));
    }
  }
  return {spare, kSide};
}

// Four values of each of four runs that are four apart.
__m512 load_lanes(const float* src, int64_t stride) {
  __m512 lanes = _mm512_castps128_ps512(_mm_loadu_ps(src));
  lanes = _mm512_insertf32x4(lanes, _mm_loadu_ps(src + 4 * stride), 1);
  lanes = _mm512_insertf32x4(lanes, _mm_loadu_ps(src + 8 * stride), 2);
  return _mm512_insertf32x4(lanes, _mm_loadu_ps(src + 12 * stride), 3);
}

Block turn(const Block& block, float* spare) {
  for (int64_t run = 0; run < kSide; run += 16) {
    for (int64_t i = 0; i < kSide; i += 4) {
      const float* src = block.at + run * block.stride + i;
      float* dst = spare + i * kSide + run;
      const __m512 r0 = load_lanes(src, block.stride);
      const __m512 r1 = load_lanes(src + block.stride, block.stride);
      const __m512 r2 = load_lanes(src + 2 * block.stride, block.stride);
      const __m512 r3 = load_lanes(src + 3 * block.stride, block.stride);
      const __m512d lo01 = _mm512_castps_pd(_mm512_unpacklo_ps(r0, r1));
      const __m512d hi01 = _mm512_castps_pd(_mm512_unpackhi_ps(r0, r1));
      const __m512d lo23 = _mm512_castps_pd(_mm512_unpacklo_ps(r2, r3));
      const __m512d hi23 = _mm512_castps_pd(_mm512_unpackhi_ps(r2, r3));
      _mm512_store_pd(dst, _mm512_unpacklo_pd(lo01, lo23));
      _mm512_store_pd(dst + kSide, _mm512_unpackhi_pd(lo01, lo23));
      _mm512_store_pd(dst + 2 * kSide, _mm512_unpacklo_pd(hi01, hi23));
      _mm512_store_pd(dst + 3 * kSide, _mm512_unpackhi_pd(hi01, hi23));
    }
  }
  return {spare, kSide};
}

struct Parts {
  __m512i first, second, third;  // bf16 in the upper half of each element; of the third, the lower is noise
};

// To the nearest bf16, ties away from zero.
__m512i round_bits(__m512 x) {
  const __m512i up = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  return _mm512_and_epi32(up, _mm512_set1_epi32(static_cast<int>(0xffff0000)));
}

// For values that are finite and stay so when rounded. Of others, the third part is a NaN.
Parts split(__m512 x) {
  const __m512i first = round_bits(x);
  const __m512 rest = _mm512_sub_ps(x, _mm512_castsi512_ps(first));
  const __m512i second = round_bits(rest);
  return {first, second, _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(second)))};
}

// For any values. Those next to the largest are cut rather than rounded; infinities and NaNs have no rest.
Parts split_any(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i size = _mm512_and_epi32(bits, _mm512_set1_epi32(0x7fffffff));
  const __mmask16 huge = _mm512_cmpge_epu32_mask(size, _mm512_set1_epi32(0x7f7f8000));
  const __mmask16 finite = _mm512_cmplt_epu32_mask(size, _mm512_set1_epi32(0x7f800000));
  const __mmask16 nan = _mm512_cmpgt_epu32_mask(size, _mm512_set1_epi32(0x7f800000));
  __m512i first =
      _mm512_mask_and_epi32(round_bits(x), huge, bits, _mm512_set1_epi32(static_cast<int>(0xffff0000)));
  first = _mm512_mask_or_epi32(first, nan, first, _mm512_set1_epi32(0x00400000));
  const __m512 rest = _mm512_maskz_sub_ps(finite, x, _mm512_castsi512_ps(first));
  const __m512i second = round_bits(rest);
  return {first, second, _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(second)))};
}

// Two values of k side by side.
__m512i pair(__m512i low, __m512i high) {
  constexpr int kMaskedOr = 0xf8;  // a | (b & c)
  return _mm512_ternarylogic_epi32(_mm512_srli_epi32(low, 16), high,
                                   _mm512_set1_epi32(static_cast<int>(0xffff0000)), kMaskedOr);
}

// A tile's row of pairs, in all three parts. `noticed` becomes a NaN if a value needed split_any.
template <bool kAny, bool kSmallestFirst>
void split_row(const float* low_src, const float* high_src, std::byte* dst, __m512& noticed) {
  const __m512 low_values = _mm512_loadu_ps(low_src), high_values = _mm512_loadu_ps(high_src);
  const Parts low = kAny ? split_any(low_values) : split(low_values);
  const Parts high = kAny ? split_any(high_values) : split(high_values);
  const __m512 thirds = _mm512_add_ps(_mm512_castsi512_ps(low.third), _mm512_castsi512_ps(high.third));
  noticed = _mm512_add_ps(noticed, thirds);
  constexpr int64_t kFirst = kSmallestFirst ? 2 * kSplitPartBytes : 0;
  constexpr int64_t kThird = 2 * kSplitPartBytes - kFirst;
  _mm512_store_si512(dst + kFirst, pair(low.first, high.first));
  _mm512_store_si512(dst + kSplitPartBytes, pair(low.second, high.second));
  _mm512_store_si512(dst + kThird, pair(low.third, high.third));
}

// Runs along k become rows of A's tiles; a row of B's is two runs along its lines. Returns whether the values
// were fit for split(), if they were not to be split by split_any().
template <bool kAny, bool kTilesOfA>
bool split_block(const Block& block, std::byte* dst) {
  __m512 noticed = _mm512_setzero_ps();
  for (int64_t row = 0; row < kSide; ++row, dst += 64) {
    const float* low =
        kTilesOfA ? block.at + row * block.stride : block.at + row % 16 * block.stride + row / 16 * 16;
    const float* high = low + (kTilesOfA ? 16 : 16 * block.stride);
    split_row<kAny, kTilesOfA>(low, high, dst, noticed);
  }
  return _mm512_cmp_ps_mask(noticed, noticed, _CMP_UNORD_Q) == 0;
}

template <bool kTilesOfA>
void pack_block(const PackArgs& args, int64_t line, int64_t k) {
  const bool along_k = args.k_stride == 1;
  alignas(64) float copy[kSide * kSide], turned[kSide * kSide];
  Block block = read_block(args, line, k, along_k, copy);
  if (along_k != kTilesOfA) block = turn(block, turned);
  std::byte* dst =
      static_cast<std::byte*>(args.dst) + line / kSide * args.panel_bytes + k * kSide * kSplitElemBytes;
  if (!split_block<false, kTilesOfA>(block, dst)) split_block<true, kTilesOfA>(block, dst);
}

// In the order of the source.
template <bool kTilesOfA>
void pack(const PackArgs& args) {
  if (args.k_stride == 1) {
    for (int64_t line = 0; line < args.count; line += kSide) {
      for (int64_t k = 0; k < args.k_padded; k += kSide) pack_block<kTilesOfA>(args, line, k);
    }
  } else {
    for (int64_t k = 0; k < args.k_padded; k += kSide) {
      for (int64_t line = 0; line < args.count; line += kSide) pack_block<kTilesOfA>(args, line, k);
    }
  }
}

}  // namespace

void pack_split_a(const PackArgs& args) { pack<true>(args); }

void pack_split_b(const PackArgs& args) { pack<false>(args); }

}  // namespace tandem::cpu

#pragma GCC pop_options
