#include "tandem/kernels/cpu/conv/image_kernels.h"

#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {

void add_image_kernels(KernelRegistry& registry) {
  add_conv_kernels(registry);
  add_batch_norm_kernels(registry);
  add_batch_norm_sync_kernels(registry);
  add_group_norm_kernels(registry);
  add_pool_kernels(registry);
}

}  // namespace tandem::cpu
