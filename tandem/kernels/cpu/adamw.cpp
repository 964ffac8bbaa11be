// AdamW over all parameters in one call.
#include <cmath>

#include "tandem/kernels/cpu/optimizer_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/adamw.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/optimizer_update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

// The bias corrections are folded into two constants:
// w' = w keep - (lr / c1) m / (sqrt(v) / sqrt(c2) + eps), with c = 1 - beta^step.
void update_adamw(const cpu::UpdateChunk& chunk, const cpu::OptimizerStep& step) {
  const FloatTag d;
  const auto constant = [d](double x) { return hn::Set(d, static_cast<float>(x)); };
  const auto beta1 = constant(step.beta1), rest1 = constant(1 - step.beta1);
  const auto beta2 = constant(step.beta2), rest2 = constant(1 - step.beta2);
  const auto rate = constant(step.lr / (1 - std::pow(step.beta1, step.step)));
  const auto root_scale = constant(1 / std::sqrt(1 - std::pow(step.beta2, step.step)));
  const auto eps = constant(step.eps);
  const auto keep = constant(1 - step.lr * (chunk.decayed ? step.decay : 0));
  update_chunk(chunk, step.grad_factor, [&](FloatVec w, FloatVec g, size_t i, auto part) {
    const auto m = hn::MulAdd(beta1, load_float(d, chunk.m + i, part), hn::Mul(rest1, g));
    const auto v = hn::MulAdd(beta2, load_float(d, chunk.v + i, part), hn::Mul(rest2, hn::Mul(g, g)));
    store_float(d, m, chunk.m + i, part);
    store_float(d, v, chunk.v + i, part);
    const auto direction = hn::Div(hn::Mul(rate, m), hn::MulAdd(hn::Sqrt(v), root_scale, eps));
    return hn::MulSub(w, keep, direction);
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
