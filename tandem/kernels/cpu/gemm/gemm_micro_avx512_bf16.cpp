// bf16 tiles for AVX512_BF16: an element is a pair of neighbours in k, multiplied and summed in one
// instruction (vdpbf16ps) into fp32.
#include <immintrin.h>

#include <utility>

#include "tandem/kernels/cpu/gemm/gemm_engine.h"

#pragma GCC push_options
#pragma GCC target("avx512bf16,avx512f,avx512vl,avx512dq,avx512bw,avx512cd,avx2,fma")

namespace tandem::cpu {
namespace {

#include "tandem/kernels/cpu/gemm/gemm_micro-inl.h"

struct Avx512Bf16Pairs {
  using Reg = __m512;
  using Elem = uint32_t;
  static constexpr int kLanes = 16, kMr = kPairTile.mr, kVecs = kPairTile.nr / kLanes, kDepth = 2;
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg load(const uint32_t* src) { return _mm512_loadu_ps(src); }
  static Reg load_sums(const float* src) { return _mm512_loadu_ps(src); }
  static void store(float* dst, Reg value) { _mm512_storeu_ps(dst, value); }
  static Reg broadcast(const uint32_t* src) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*src)));
  }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};

}  // namespace

GemmMicro gemm_micro_avx512_bf16() { return micro<Avx512Bf16Pairs>(); }

}  // namespace tandem::cpu

#pragma GCC pop_options
