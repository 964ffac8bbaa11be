#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {

KernelRegistry all_kernels() {
  KernelRegistry registry;
  add_matmul_kernels(registry);
  add_attention_kernels(registry);
  add_norm_kernels(registry);
  add_pointwise_kernels(registry);
  add_embedding_kernels(registry);
  add_loss_kernels(registry);
  add_optimizer_kernels(registry);
  add_image_kernels(registry);
  add_reference_kernels(registry);
  return registry;
}

KernelRegistry reference_kernels() {
  KernelRegistry registry;
  add_reference_kernels(registry);
  return registry;
}

}  // namespace tandem::cpu
