// The CPU backend's kernels. Each family adds its fast kernels; the reference kernels come last, so that
// they are chosen only where no fast kernel supports a call.
#pragma once

#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

void add_matmul_kernels(KernelRegistry& registry);
void add_attention_kernels(KernelRegistry& registry);
void add_norm_kernels(KernelRegistry& registry);
void add_pointwise_kernels(KernelRegistry& registry);
void add_embedding_kernels(KernelRegistry& registry);
void add_loss_kernels(KernelRegistry& registry);
void add_optimizer_kernels(KernelRegistry& registry);
void add_image_kernels(KernelRegistry& registry);
void add_reference_kernels(KernelRegistry& registry);

KernelRegistry all_kernels();        // fast first, reference last
KernelRegistry reference_kernels();  // reference only

}  // namespace tandem::cpu
