// RmsNorm, alone or after an Add, and its gradient: see norm_kernels-inl.h.
#include "tandem/kernels/cpu/norm/norm_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/norm/rms_norm.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/norm/norm_kernels_grad-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

void run_rms_norm(const KernelArgs& args, Stream& stream) { run_norm<NormKind::Rms, false>(args, stream); }
void run_add_rms_norm(const KernelArgs& args, Stream& stream) { run_norm<NormKind::Rms, true>(args, stream); }
void run_rms_norm_grad(const KernelArgs& args, Stream& stream) { run_norm_grad<NormKind::Rms>(args, stream); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(run_rms_norm);
HWY_EXPORT(run_add_rms_norm);
HWY_EXPORT(run_rms_norm_grad);

namespace cpu {
namespace {

void rms_norm(const KernelArgs& args, Stream& stream) { HWY_DYNAMIC_DISPATCH(run_rms_norm)(args, stream); }
void add_rms_norm(const KernelArgs& args, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(run_add_rms_norm)(args, stream);
}
void rms_norm_grad(const KernelArgs& args, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(run_rms_norm_grad)(args, stream);
}

}  // namespace

void add_rms_norm_kernels(KernelRegistry& registry) {
  registry.add({"cpu.rms_norm", Op::RmsNorm, supports_norm<NormKind::Rms>, norm_workspace, rms_norm});
  registry.add(
      {"cpu.add_rms_norm", Op::AddRmsNorm, supports_add_norm<NormKind::Rms>, norm_workspace, add_rms_norm});
  registry.add({"cpu.rms_norm_grad", Op::RmsNormGrad, supports_norm_grad<NormKind::Rms>,
                norm_grad_workspace<NormKind::Rms>, rms_norm_grad});
}

}  // namespace cpu
}  // namespace tandem
#endif
