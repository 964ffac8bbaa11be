// fp32 tiles for AVX-512.
#include <immintrin.h>

#include <utility>

#include "tandem/kernels/cpu/gemm/gemm_engine.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx512cd,avx2,fma")

namespace tandem::cpu {
namespace {

#include "tandem/kernels/cpu/gemm/gemm_micro-inl.h"

struct Avx512F32 {
  using Reg = __m512;
  using Elem = float;
  static constexpr int kLanes = 16, kMr = kAvx512Tile.mr, kVecs = kAvx512Tile.nr / kLanes, kDepth = 1;
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg load(const float* src) { return _mm512_loadu_ps(src); }
  static Reg load_sums(const float* src) { return _mm512_loadu_ps(src); }
  static void store(float* dst, Reg value) { _mm512_storeu_ps(dst, value); }
  static Reg broadcast(const float* src) { return _mm512_set1_ps(*src); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg sum) { return _mm512_fmadd_ps(a, b, sum); }
};

}  // namespace

GemmMicro gemm_micro_avx512() { return micro<Avx512F32>(); }

}  // namespace tandem::cpu

#pragma GCC pop_options
