// The kernels of images, family by family.
#pragma once

#include "tandem/runtime/kernel.h"

namespace tandem::cuda {

void add_conv_kernels(KernelRegistry& registry);        // conv2d*
void add_batch_norm_kernels(KernelRegistry& registry);  // batch_norm*
void add_group_norm_kernels(KernelRegistry& registry);  // group_norm*
void add_pool_kernels(KernelRegistry& registry);        // max_pool2d*, global_avg_pool*

inline void add_image_kernels(KernelRegistry& registry) {
  add_conv_kernels(registry);
  add_batch_norm_kernels(registry);
  add_group_norm_kernels(registry);
  add_pool_kernels(registry);
}

}  // namespace tandem::cuda
