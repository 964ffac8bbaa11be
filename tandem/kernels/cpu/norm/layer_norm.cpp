// LayerNorm, alone or after an Add, and its gradient: see norm_kernels-inl.h.
#include "tandem/kernels/cpu/norm/norm_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/norm/layer_norm.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/norm/norm_kernels_grad-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

void run_layer_norm(const KernelArgs& args, Stream& stream) {
  run_norm<NormKind::Layer, false>(args, stream);
}
void run_add_layer_norm(const KernelArgs& args, Stream& stream) {
  run_norm<NormKind::Layer, true>(args, stream);
}
void run_layer_norm_grad(const KernelArgs& args, Stream& stream) {
  run_norm_grad<NormKind::Layer>(args, stream);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(run_layer_norm);
HWY_EXPORT(run_add_layer_norm);
HWY_EXPORT(run_layer_norm_grad);

namespace cpu {
namespace {

void layer_norm(const KernelArgs& args, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(run_layer_norm)(args, stream);
}
void add_layer_norm(const KernelArgs& args, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(run_add_layer_norm)(args, stream);
}
void layer_norm_grad(const KernelArgs& args, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(run_layer_norm_grad)(args, stream);
}

}  // namespace

void add_layer_norm_kernels(KernelRegistry& registry) {
  registry.add({"cpu.layer_norm", Op::LayerNorm, supports_norm<NormKind::Layer>, norm_workspace, layer_norm});
  registry.add({"cpu.add_layer_norm", Op::AddLayerNorm, supports_add_norm<NormKind::Layer>, norm_workspace,
                add_layer_norm});
  registry.add({"cpu.layer_norm_grad", Op::LayerNormGrad, supports_norm_grad<NormKind::Layer>,
                norm_grad_workspace<NormKind::Layer>, layer_norm_grad});
}

}  // namespace cpu
}  // namespace tandem
#endif
