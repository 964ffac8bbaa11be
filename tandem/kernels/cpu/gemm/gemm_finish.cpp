// The last step of a product: adds bias, applies GELU, adds to or rounds into C. Runs on a tile that has
// just been computed and is still in the nearest cache.
#include <cstring>

#include "tandem/kernels/cpu/gemm/gemm_engine.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/gemm/gemm_finish.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tandem/kernels/cpu/pointwise/gelu-inl.h"
#include "tandem/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

using cpu::FinishArgs;

// One vector of a row; the value that goes to C. `pre` may be null.
template <typename S, typename B>
HWY_INLINE void finish_vector(FloatTag d, const FinishArgs& args, const float* sums, const B* bias, S* c,
                              S* pre) {
  FloatVec value = hn::LoadU(d, sums);
  if (args.accumulate) value = hn::Add(load_float(d, c), value);
  if (bias != nullptr) value = hn::Add(value, load_float(d, bias));
  if (pre != nullptr) {
    store_float(d, value, pre);
    value = gelu(d, load_float(d, pre));  // of the value as stored, like a separate Gelu op
  }
  store_float(d, value, c);
}

template <typename S, typename B = S>
void finish_as(const FinishArgs& args) {
  const FloatTag d;
  constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
  const int64_t whole = args.cols / kLanes * kLanes;
  const auto tail_bytes = static_cast<size_t>(args.cols - whole) * sizeof(S);
  const auto* bias = static_cast<const B*>(args.bias);
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* sums = args.sums + row * args.sums_stride;
    S* c = static_cast<S*>(args.c) + row * args.c_stride;
    S* pre = args.pre == nullptr ? nullptr : static_cast<S*>(args.pre) + row * args.c_stride;
    for (int64_t col = 0; col < whole; col += kLanes) {
      finish_vector(d, args, sums + col, bias == nullptr ? nullptr : bias + col, c + col,
                    pre == nullptr ? nullptr : pre + col);
    }
    if (tail_bytes == 0) continue;
    // The last few columns go through copies of a whole vector, so that nothing outside C is touched.
    float sums_tail[kLanes] = {};
    B bias_tail[kLanes] = {};
    S c_tail[kLanes] = {}, pre_tail[kLanes] = {};
    std::memcpy(sums_tail, sums + whole, static_cast<size_t>(args.cols - whole) * sizeof(float));
    if (bias != nullptr)
      std::memcpy(bias_tail, bias + whole, static_cast<size_t>(args.cols - whole) * sizeof(B));
    if (args.accumulate) std::memcpy(c_tail, c + whole, tail_bytes);
    finish_vector(d, args, sums_tail, bias == nullptr ? nullptr : bias_tail, c_tail,
                  pre == nullptr ? nullptr : pre_tail);
    std::memcpy(c + whole, c_tail, tail_bytes);
    if (pre != nullptr) std::memcpy(pre + whole, pre_tail, tail_bytes);
  }
}

}  // namespace

void finish(const FinishArgs& args) {
  switch (args.c_dtype) {
    case DType::BF16: return finish_as<BFloat16>(args);
    case DType::F16: return finish_as<Half>(args);
    default: break;
  }
  switch (args.bias_dtype) {
    case DType::BF16: return finish_as<float, BFloat16>(args);
    case DType::F16: return finish_as<float, Half>(args);
    default: return finish_as<float>(args);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

void (*gemm_finish(Isa isa))(const FinishArgs&) {
  if (isa >= Isa::Avx512) return N_AVX3::finish;
  if (isa == Isa::Avx2) return N_AVX2::finish;
  return HWY_STATIC_DISPATCH(finish);
}

}  // namespace tandem::cpu
#endif
