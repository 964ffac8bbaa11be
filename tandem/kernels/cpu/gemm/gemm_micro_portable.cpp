// fp32 tiles with what every x86-64 has: four lanes, no fused multiply-add.
#include <cstring>
#include <utility>

#include "tandem/kernels/cpu/gemm/gemm_engine.h"

namespace tandem::cpu {
namespace {

#include "tandem/kernels/cpu/gemm/gemm_micro-inl.h"

struct PortableF32 {
  typedef float Reg __attribute__((vector_size(16)));
  using Elem = float;
  static constexpr int kLanes = 4, kMr = kPortableTile.mr, kVecs = kPortableTile.nr / kLanes, kDepth = 1;
  static Reg zero() { return Reg{0, 0, 0, 0}; }
  static Reg load(const float* src) {
    Reg value;
    std::memcpy(&value, src, sizeof(value));
    return value;
  }
  static Reg load_sums(const float* src) { return load(src); }
  static void store(float* dst, Reg value) { std::memcpy(dst, &value, sizeof(value)); }
  static Reg broadcast(const float* src) { return Reg{*src, *src, *src, *src}; }
  static Reg add(Reg a, Reg b) { return a + b; }
  static Reg fma(Reg a, Reg b, Reg sum) { return a * b + sum; }
};

}  // namespace

GemmMicro gemm_micro_portable() { return micro<PortableF32>(); }

}  // namespace tandem::cpu
