#include "tandem/kernels/cpu/ref/ref_tensor.h"
#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {

void ref::add(KernelRegistry& registry, Op op, void (*run)(const KernelArgs& args, Stream& stream)) {
  registry.add({.name = "ref." + std::string(op_name(op)),
                .op = op,
                .supports = [](const CallSignature&) { return true; },
                .workspace = nullptr,
                .run = run});
}

void add_reference_kernels(KernelRegistry& registry) {
  ref::add_matmul(registry);
  ref::add_conv(registry);
  ref::add_norm(registry);
  ref::add_image_norm(registry);
  ref::add_batch_norm_sync(registry);
  ref::add_attention(registry);
  ref::add_cached_attention(registry);
  ref::add_qk_norm(registry);
  ref::add_pointwise(registry);
  ref::add_shape(registry);
  ref::add_pool(registry);
  ref::add_embedding(registry);
  ref::add_loss(registry);
  ref::add_vocab_loss(registry);
  ref::add_optimizer(registry);
  ref::add_loss_scaler(registry);
  ref::add_fp8(registry);
}

}  // namespace tandem::cpu
