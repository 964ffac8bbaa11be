// The tanh form of GELU on fp32 vectors, shared by the matrix product's epilogue and the pointwise
// kernels so that fused and separate runs give the same bits. Uses 0.5 (1 + tanh u) = sigmoid(2 u), which
// needs one exponential and does not cancel.
#if defined(TANDEM_KERNELS_CPU_GELU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_GELU_INL_H_
#undef TANDEM_KERNELS_CPU_GELU_INL_H_
#else
#define TANDEM_KERNELS_CPU_GELU_INL_H_
#endif

#include "hwy/highway.h"
#include "tandem/kernels/cpu/pointwise/exp-inl.h"
#include "tandem/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {

HWY_INLINE FloatVec sigmoid(FloatTag d, FloatVec x) {
  const FloatVec one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, fast_exp(d, hn::Neg(x))));
}

// sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3). Beyond |x| = 16 the result no longer changes.
HWY_INLINE FloatVec gelu_gate(FloatTag d, FloatVec x) {
  x = at_least(hn::Set(d, -16.0f), at_most(hn::Set(d, 16.0f), x));
  const FloatVec cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715f * 1.59576912160573081f),
                                    hn::Set(d, 1.59576912160573081f));
  return sigmoid(d, hn::Mul(x, cubic));
}

HWY_INLINE FloatVec gelu(FloatTag d, FloatVec x) { return hn::Mul(x, gelu_gate(d, x)); }

// d gelu(x) / dx = s + x s (1 - s) (2 u)', with s = sigmoid(2 u).
HWY_INLINE FloatVec gelu_slope(FloatTag d, FloatVec x) {
  const FloatVec s = gelu_gate(d, x);
  const FloatVec clamped = at_least(hn::Set(d, -16.0f), at_most(hn::Set(d, 16.0f), x));
  const FloatVec du = hn::MulAdd(hn::Mul(clamped, clamped), hn::Set(d, 3 * 0.044715f * 1.59576912160573081f),
                                 hn::Set(d, 1.59576912160573081f));
  const FloatVec bend = hn::Mul(hn::Mul(clamped, s), hn::Sub(hn::Set(d, 1.0f), s));
  return hn::MulAdd(bend, du, s);
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#endif
