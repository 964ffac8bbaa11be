// fp32 tiles for AVX2 with FMA.
#include <immintrin.h>

#include <utility>

#include "tandem/kernels/cpu/gemm/gemm_engine.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma")

namespace tandem::cpu {
namespace {

#include "tandem/kernels/cpu/gemm/gemm_micro-inl.h"

struct Avx2F32 {
  using Reg = __m256;
  using Elem = float;
  static constexpr int kLanes = 8, kMr = kAvx2Tile.mr, kVecs = kAvx2Tile.nr / kLanes, kDepth = 1;
  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg load(const float* src) { return _mm256_loadu_ps(src); }
  static Reg load_sums(const float* src) { return _mm256_loadu_ps(src); }
  static void store(float* dst, Reg value) { _mm256_storeu_ps(dst, value); }
  static Reg broadcast(const float* src) { return _mm256_broadcast_ss(src); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg sum) { return _mm256_fmadd_ps(a, b, sum); }
};

}  // namespace

GemmMicro gemm_micro_avx2() { return micro<Avx2F32>(); }

}  // namespace tandem::cpu

#pragma GCC pop_options
