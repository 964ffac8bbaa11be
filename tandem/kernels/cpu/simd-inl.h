// Highway building blocks shared by the fast CPU kernels: loads and stores of any storage type S as fp32
// vectors. Included once per target from within foreach_target, hence the toggled guard.
#if defined(TANDEM_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_SIMD_INL_H_
#undef TANDEM_KERNELS_CPU_SIMD_INL_H_
#else
#define TANDEM_KERNELS_CPU_SIMD_INL_H_
#endif

#include "hwy/highway.h"
#include "tandem/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVec = hn::Vec<FloatTag>;

HWY_INLINE FloatVec load_float(FloatTag d, const float* src) { return hn::LoadU(d, src); }
HWY_INLINE FloatVec load_float(FloatTag d, const BFloat16* src) {
  const hn::Rebind<uint16_t, FloatTag> d16;
  const hn::RebindToUnsigned<FloatTag> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(src)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}
HWY_INLINE FloatVec load_float(FloatTag d, const Half* src) {
#if HWY_TARGET == HWY_SCALAR  // whose PromoteTo turns infinities and NaNs into numbers
  return hn::Set(d, to_float(*src));
#else
  const hn::Rebind<hwy::float16_t, FloatTag> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(src)));
#endif
}

HWY_INLINE void store_float(FloatTag d, FloatVec v, float* dst) { hn::StoreU(v, d, dst); }
HWY_INLINE void store_float(FloatTag d, FloatVec v, BFloat16* dst) {
  (void)d;
  // Round to nearest even by adding half of the dropped part; a NaN keeps its top bits and is made quiet.
  const hn::RebindToUnsigned<FloatTag> d32;
  const hn::Rebind<uint16_t, FloatTag> d16;
  const auto bits = hn::BitCast(d32, v);
  const auto lsb = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(lsb, hn::Set(d32, 0x7fffu))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d32, 0x40u));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
  hn::StoreU(hn::TruncateTo(d16, hn::IfThenElse(is_nan, quiet, rounded)), d16,
             reinterpret_cast<uint16_t*>(dst));
}
HWY_INLINE void store_float(FloatTag d, FloatVec v, Half* dst) {
  (void)d;
#if HWY_TARGET == HWY_SCALAR  // whose DemoteTo truncates
  *dst = to_half(hn::GetLane(v));
#else
  const hn::Rebind<hwy::float16_t, FloatTag> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(dst));
#endif
}

// Scalar forms for the tail of a row.
HWY_INLINE float scalar_float(float x) { return x; }
HWY_INLINE float scalar_float(BFloat16 x) { return to_float(x); }
HWY_INLINE float scalar_float(Half x) { return to_float(x); }
HWY_INLINE void store_scalar(float x, float* dst) { *dst = x; }
HWY_INLINE void store_scalar(float x, BFloat16* dst) { *dst = to_bfloat16(x); }
HWY_INLINE void store_scalar(float x, Half* dst) { *dst = to_half(x); }

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#endif
