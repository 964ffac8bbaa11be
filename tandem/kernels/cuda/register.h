// The CUDA kernels, family by family. Where an op has several, the faster is added first.
#pragma once

#include "tandem/runtime/kernel.h"

namespace tandem::cuda {

void add_matmul_kernels(KernelRegistry& registry);           // matmul*, bias_grad
void add_fp8_kernels(KernelRegistry& registry);              // fp8_*, but for products
void add_norm_kernels(KernelRegistry& registry);             // layer_norm*, rms_norm*, add_*
void add_hopper_kernels(KernelRegistry& registry);           // attention_grad, heads of 64, 16-bit types
void add_fused_attention_kernels(KernelRegistry& registry);  // attention* through cuDNN, 16-bit types
void add_attention_kernels(KernelRegistry& registry);        // attention* of any type, rope*
void add_pointwise_kernels(
    KernelRegistry& registry);  // add ... swiglu_grad, concat, slice, zeros, cast, copy
void add_embedding_kernels(KernelRegistry& registry);  // embedding*, position_grad
void add_loss_kernels(KernelRegistry& registry);  // cross_entropy*, linear_cross_entropy*, vocab_*, add_stats
void add_optimizer_kernels(KernelRegistry& registry);  // square_sums, global_norm, optimizers, loss scaler

bool hopper_sums_for_bias(const TensorType& qkv, const Attrs& attrs);  // FuseOptions::attention_sums
bool has_hopper_code();                                                // this was built with

// Those for this machine's GPUs; where there are none, for a Hopper.
KernelRegistry all_kernels();

}  // namespace tandem::cuda
