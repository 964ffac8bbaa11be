// The loop that both update rules share: one pass over a chunk that reads the weight (or its master) and the
// gradient as fp32, applies the rule, and stores the new weight and a zeroed gradient. Rules use no fused
// multiply-adds: not every target has them, and all must give the bits of tandem/runtime/optimizer_step.h.
// Included once per target from within foreach_target, hence the toggled guard.
#if defined(TANDEM_KERNELS_CPU_OPTIMIZER_UPDATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_OPTIMIZER_UPDATE_INL_H_
#undef TANDEM_KERNELS_CPU_OPTIMIZER_UPDATE_INL_H_
#else
#define TANDEM_KERNELS_CPU_OPTIMIZER_UPDATE_INL_H_
#endif

#include "hwy/highway.h"
#include "tandem/kernels/cpu/optimizer_kernels.h"
#include "tandem/kernels/cpu/pointwise-inl.h"
#include "tandem/kernels/cpu/pointwise.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {

template <typename W, typename G, typename Rule>
HWY_INLINE void update_elems(const cpu::UpdateChunk& chunk, float grad_factor, const Rule& rule) {
  const FloatTag d;
  W* w = static_cast<W*>(chunk.w);
  G* g = static_cast<G*>(chunk.g);
  float* master = chunk.master;
  const auto factor = hn::Set(d, grad_factor);
  for_each_vector(static_cast<size_t>(chunk.elems), [&](size_t i, auto part) {
    const auto old = master != nullptr ? load_float(d, master + i, part) : load_float(d, w + i, part);
    const auto grad = hn::Mul(load_float(d, g + i, part), factor);
    const auto updated = rule(old, grad, i, part);
    if (master != nullptr) store_float(d, updated, master + i, part);
    store_float(d, updated, w + i, part);
    if (!chunk.keep_gradient) store_float(d, hn::Zero(d), g + i, part);
  });
}

// rule(old weight, gradient, index, part) gives the new weight.
template <typename Rule>
HWY_INLINE void update_chunk(const cpu::UpdateChunk& chunk, float grad_factor, const Rule& rule) {
  cpu::with_storage(chunk.w_dtype, [&]<typename W>(W) {
    if (chunk.g_dtype == DType::F32) {
      update_elems<W, float>(chunk, grad_factor, rule);
    } else {
      update_elems<W, W>(chunk, grad_factor, rule);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#endif
