// The gradient of attention on Hopper's matrix units, for heads of 64 elements of 16 bits: causal over any
// length, without a mask over multiples of 64. Sums are made in a fixed order and gradients of scores never
// leave the registers, so that it needs next to no scratch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include "tandem/kernels/cuda/fused_attention.h"

namespace tandem::cuda {

bool hopper_attention_grad_supported(const FusedAttention& shape);
size_t hopper_attention_grad_workspace(const FusedAttention& shape);
void run_hopper_attention_grad(const FusedAttention& shape, const FusedAttentionGradTensors& tensors,
                               std::span<std::byte> workspace, cudaStream_t queue);

}  // namespace tandem::cuda
