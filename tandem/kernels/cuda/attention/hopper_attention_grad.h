// The gradient of attention on Hopper's matrix units, for heads of 64 elements of 16 bits. Sums are made in a
// fixed order and gradients of scores never leave the registers, so that it needs next to no scratch. It can
// also sum the columns of its result, which are the gradient of a bias.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include "tandem/kernels/cuda/attention/fused_attention.h"

namespace tandem::cuda {

struct BiasSums {
  float* sums = nullptr;  // null: none
  bool accumulate = false;
};

bool hopper_attention_grad_supported(const FusedAttention& shape);
size_t hopper_attention_grad_workspace(const FusedAttention& shape, bool with_bias);
void run_hopper_attention_grad(const FusedAttention& shape, const FusedAttentionGradTensors& tensors,
                               const BiasSums& bias, std::span<std::byte> workspace, cudaStream_t queue);

}  // namespace tandem::cuda
