// The kernels of all optimizers: each updates all parameters in one call.
#include <utility>

#include "tandem/kernels/cpu/optimizer/optimizer_kernels.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"
#include "tandem/runtime/storage.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/optimizer/update.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/optimizer/optimizer_update-inl.h"
#include "tandem/kernels/cpu/optimizer/rules-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

#define TANDEM_UPDATE(type, name)                                                      \
  void update_##name(const cpu::UpdateChunk& chunk, const OptimizerStep<type>& step) { \
    update_chunk<type>(chunk, GradientReader(step), Rule<type>(step, chunk.decayed));  \
  }
TANDEM_OPTIMIZERS(TANDEM_UPDATE)
#undef TANDEM_UPDATE

void blend_weights(const KernelArgs& args, float share, int64_t begin, int64_t end) {
  cpu::with_storage(args.out[0].type.dtype, [&]<typename W>(W) {
    const FloatTag d;
    W* w = args.out[0].as<W>() + begin;
    const float* x = args.in[2].as<float>() + begin;
    const float* lead = args.in[3].as<float>() + begin;
    for_each_vector(static_cast<size_t>(end - begin), [&](size_t i, auto part) {
      const auto ahead = hn::Mul(hn::Set(d, share), load_float(d, lead + i, part));
      store_alone(d, hn::Add(load_float(d, x + i, part), ahead), w + i, part);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
#define TANDEM_EXPORT(type, name) HWY_EXPORT(update_##name);
TANDEM_OPTIMIZERS(TANDEM_EXPORT)
#undef TANDEM_EXPORT
HWY_EXPORT(blend_weights);

namespace cpu {
namespace {

template <typename Optimizer>
OptimizerStep<Optimizer> step_of(const UpdateChunk& chunk, const std::vector<OptimizerStep<Optimizer>>& steps,
                                 const KernelArgs& args) {
  const OptimizerStep<Optimizer>& step = steps[chunk.rate];
  const bool reads_norms = Optimizer::kEntry.granularity == Granularity::Tensor;
  return reads_norms ? with_trust(step, args.in[2].as<double>(), chunk.slot, chunk.decayed) : step;
}

#define TANDEM_RUN(type, name)                                                                 \
  void run_##name(const KernelArgs& args, Stream& stream) {                                    \
    const std::vector<OptimizerStep<type>> steps = steps_of<type>(args);                       \
    const auto update = HWY_DYNAMIC_DISPATCH(update_##name);                                   \
    update_all(Op::type, args, stream.pool(), steps[0].skip,                                   \
               [&](const UpdateChunk& chunk) { update(chunk, step_of(chunk, steps, args)); }); \
  }
TANDEM_OPTIMIZERS(TANDEM_RUN)
#undef TANDEM_RUN

bool supports_blend(const CallSignature& call) {
  return is_storage(call.in[1].dtype) && call.in[2].dtype == DType::F32 && call.in[3].dtype == DType::F32;
}

void run_blend(const KernelArgs& args, Stream& stream) {
  const float share = *args.in[0].as<float>();
  const auto blend = HWY_DYNAMIC_DISPATCH(blend_weights);
  for_pieces(stream.pool(), args.out[0].elems(), kElemsPerTask,
             [&](int64_t begin, int64_t end, int) { blend(args, share, begin, end); });
}

}  // namespace

void add_update_kernels(KernelRegistry& kernels) {
#define TANDEM_KERNEL(type, name) kernels.add({"cpu." #name, Op::type, supports_update, nullptr, run_##name});
  TANDEM_OPTIMIZERS(TANDEM_KERNEL)
#undef TANDEM_KERNEL
  kernels.add({"cpu.blend_weights", Op::BlendWeights, supports_blend, nullptr, run_blend});
}

}  // namespace cpu
}  // namespace tandem
#endif
