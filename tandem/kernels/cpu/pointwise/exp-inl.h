// Vectorised exp and tanh in fp32, within 1 and 3 ulp. Both write x = n ln2 + r with |r| <= ln2 / 2 and use
// a minimax polynomial for exp(r) - 1 - r. exp(-inf) is 0, overflow gives inf, NaN propagates.
// Included once per target from within foreach_target, hence the toggled guard.
#if defined(TANDEM_KERNELS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_EXP_INL_H_
#undef TANDEM_KERNELS_CPU_EXP_INL_H_
#else
#define TANDEM_KERNELS_CPU_EXP_INL_H_
#endif

#include "hwy/highway.h"
#include "tandem/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {

// x = n ln2 + r, and q = exp(r) - 1 with a relative error near half an ulp.
struct ExpParts {
  FloatVec n;
  FloatVec q;
};

HWY_INLINE ExpParts split_exp(FloatTag d, FloatVec x) {
  const auto log2e = hn::Set(d, 1.44269504f);
  const auto to_integer = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const auto n = hn::Sub(hn::MulAdd(x, log2e, to_integer), to_integer);
  // ln2 in two pieces; the first has few bits, so that n * ln2_hi is exact even without FMA.
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  auto p = hn::MulAdd(hn::Set(d, 1.381454018e-3f), r, hn::Set(d, 8.368745109e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.166839078e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.666652040e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.999999343e-1f));
  return {n, hn::MulAdd(hn::Mul(r, r), p, r)};
}

// 2^n for whole n in [-126, 127].
HWY_INLINE FloatVec exp2_whole(FloatTag d, FloatVec n) {
  const hn::RebindToSigned<FloatTag> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127))));
}

// Bounds that keep a NaN. The bound comes first: x86 min and max return their second operand when either
// is NaN.
HWY_INLINE FloatVec at_most(FloatVec bound, FloatVec v) {
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Gt(v, bound), bound, v);
#else
  return hn::Min(bound, v);
#endif
}
HWY_INLINE FloatVec at_least(FloatVec bound, FloatVec v) {
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Lt(v, bound), bound, v);
#else
  return hn::Max(bound, v);
#endif
}

HWY_INLINE FloatVec fast_exp(FloatTag d, FloatVec v) {
  // Beyond these bounds the result is 0 or inf anyway.
  const auto x = at_least(hn::Set(d, -105.0f), at_most(hn::Set(d, 90.0f), v));
  const ExpParts e = split_exp(d, x);
  const auto y = hn::Add(e.q, hn::Set(d, 1.0f));
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return FloatVec{_mm512_scalef_ps(y.raw, e.n.raw)};
#else
  // Two factors, since n reaches from -151 to 130.
  const auto half = hn::Floor(hn::Mul(e.n, hn::Set(d, 0.5f)));
  return hn::Mul(hn::Mul(y, exp2_whole(d, half)), exp2_whole(d, hn::Sub(e.n, half)));
#endif
}

// tanh(x) = m / (m + 2) with m = exp(2 |x|) - 1, which keeps full precision near 0.
HWY_INLINE FloatVec fast_tanh(FloatTag d, FloatVec v) {
  const auto x = at_most(hn::Set(d, 10.0f), hn::Abs(v));  // tanh(10) rounds to 1
  const ExpParts e = split_exp(d, hn::Add(x, x));
  const auto scale = exp2_whole(d, e.n);
  const auto m = hn::MulAdd(scale, e.q, hn::Sub(scale, hn::Set(d, 1.0f)));
  return hn::CopySign(hn::Div(m, hn::Add(m, hn::Set(d, 2.0f))), v);
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#endif
