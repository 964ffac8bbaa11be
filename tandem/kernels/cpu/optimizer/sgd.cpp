// SGD with momentum over all parameters in one call.
#include "tandem/kernels/cpu/optimizer/optimizer_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/optimizer/sgd.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/optimizer/optimizer_update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

void update_sgd(const cpu::UpdateChunk& chunk, const OptimizerStep& step) {
  const FloatTag d;
  const auto momentum = hn::Set(d, step.beta1), lr = hn::Set(d, step.lr);
  const auto decay = hn::Set(d, chunk.decayed ? step.decay : 0.0f);
  update_chunk(chunk, step.grad_factor, [&](FloatVec w, FloatVec g, size_t i, auto part) {
    const auto decayed_g = hn::Add(hn::Mul(decay, w), g);
    const auto m = hn::Add(hn::Mul(momentum, load_float(d, chunk.m + i, part)), decayed_g);
    store_float(d, m, chunk.m + i, part);
    return hn::Sub(w, hn::Mul(lr, m));
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(update_sgd);

namespace cpu {
namespace {

void run_sgd(const KernelArgs& args, Stream& stream) {
  update_all(Op::Sgd, args, stream.pool(), HWY_DYNAMIC_DISPATCH(update_sgd));
}

}  // namespace

void add_sgd_kernels(KernelRegistry& registry) {
  registry.add({"cpu.sgd", Op::Sgd, supports_update, nullptr, run_sgd});
}

}  // namespace cpu
}  // namespace tandem
#endif
