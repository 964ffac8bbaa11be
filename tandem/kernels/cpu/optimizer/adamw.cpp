// AdamW over all parameters in one call.
#include "tandem/kernels/cpu/optimizer/optimizer_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/optimizer/adamw.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/optimizer/optimizer_update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

void update_adamw(const cpu::UpdateChunk& chunk, const OptimizerStep& step) {
  const FloatTag d;
  const auto beta1 = hn::Set(d, step.beta1), rest1 = hn::Set(d, step.rest1);
  const auto beta2 = hn::Set(d, step.beta2), rest2 = hn::Set(d, step.rest2);
  const auto rate = hn::Set(d, step.rate), eps = hn::Set(d, step.eps);
  const auto root_scale = hn::Set(d, step.root_scale);
  const auto keep = hn::Set(d, chunk.decayed ? step.keep : 1.0f);
  update_chunk(chunk, step.grad_factor, [&](FloatVec w, FloatVec g, size_t i, auto part) {
    const auto m_old = load_float(d, chunk.m + i, part), v_old = load_float(d, chunk.v + i, part);
    const auto m = hn::Add(hn::Mul(beta1, m_old), hn::Mul(rest1, g));
    const auto v = hn::Add(hn::Mul(beta2, v_old), hn::Mul(rest2, hn::Mul(g, g)));
    store_float(d, m, chunk.m + i, part);
    store_float(d, v, chunk.v + i, part);
    const auto root = hn::Add(hn::Mul(hn::Sqrt(v), root_scale), eps);
    const auto direction = hn::Div(hn::Mul(rate, m), root);
    return hn::Sub(hn::Mul(w, keep), direction);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(update_adamw);

namespace cpu {
namespace {

void run_adamw(const KernelArgs& args, Stream& stream) {
  update_all(Op::AdamW, args, stream.pool(), HWY_DYNAMIC_DISPATCH(update_adamw));
}

}  // namespace

void add_adamw_kernels(KernelRegistry& registry) {
  registry.add({"cpu.adamw", Op::AdamW, supports_update, nullptr, run_adamw});
}

}  // namespace cpu
}  // namespace tandem
#endif
