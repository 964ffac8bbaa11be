// The kernels of all optimizers: each updates all parameters in one call.
#include <utility>

#include "tandem/kernels/cpu/optimizer/optimizer_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/optimizer/update.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/optimizer/optimizer_update-inl.h"
#include "tandem/kernels/cpu/optimizer/rules-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

#define TANDEM_UPDATE(type, name)                                                                           \
  void update_##name(const cpu::UpdateChunk& chunk, const OptimizerStep<type>& step) {                      \
    update_chunk<type::kEntry.rule_states()>(chunk, op_grad_factor(step), Rule<type>(step, chunk.decayed)); \
  }
TANDEM_OPTIMIZERS(TANDEM_UPDATE)
#undef TANDEM_UPDATE

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
#define TANDEM_EXPORT(type, name) HWY_EXPORT(update_##name);
TANDEM_OPTIMIZERS(TANDEM_EXPORT)
#undef TANDEM_EXPORT

namespace cpu {
namespace {

// One for each of the factors that parameters have.
template <typename Rule>
std::vector<OptimizerStep<Rule>> steps_of(const KernelArgs& args) {
  std::vector<OptimizerStep<Rule>> steps;
  for (const GroupFactors& factors : read_rates(args.attrs))
    steps.push_back(optimizer_step<Rule>(args.in[0].as<float>(), args.in[1].as<double>(), factors));
  return steps;
}

#define TANDEM_RUN(type, name)                                                       \
  void run_##name(const KernelArgs& args, Stream& stream) {                          \
    const std::vector<OptimizerStep<type>> steps = steps_of<type>(args);             \
    const auto update = HWY_DYNAMIC_DISPATCH(update_##name);                         \
    update_all(Op::type, args, stream.pool(), steps[0].skip,                         \
               [&](const UpdateChunk& chunk) { update(chunk, steps[chunk.rate]); }); \
  }
TANDEM_OPTIMIZERS(TANDEM_RUN)
#undef TANDEM_RUN

}  // namespace

void add_update_kernels(KernelRegistry& registry) {
#define TANDEM_KERNEL(type, name) \
  registry.add({"cpu." #name, Op::type, supports_update, nullptr, run_##name});
  TANDEM_OPTIMIZERS(TANDEM_KERNEL)
#undef TANDEM_KERNEL
}

}  // namespace cpu
}  // namespace tandem
#endif
