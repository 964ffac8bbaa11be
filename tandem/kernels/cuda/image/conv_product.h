// Convolutions as matrix products: of the rows of x where the kernel is 1x1, else of patches of them, some at
// a time. They run everywhere, in a fixed order, with f32 sums.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "tandem/kernels/cuda/gemm/gemm.h"
#include "tandem/kernels/cuda/image/conv_shape.h"

namespace tandem::cuda {

size_t conv_product_workspace(const ConvShape& shape);       // of forward and the weight's gradient
size_t conv_product_grad_workspace(const ConvShape& shape);  // of the input's gradient

// gemm_run, or gemm_prepare, which chooses how the products are run.
using Multiply = void (*)(const Gemm& gemm, const GemmTensors& tensors, std::span<std::byte> workspace,
                          cudaStream_t queue);
void conv_product(const ConvShape& shape, const ConvForward& tensors, Multiply multiply,
                  std::span<std::byte> workspace, cudaStream_t queue);
void conv_product(const ConvShape& shape, const ConvGradInput& tensors, Multiply multiply,
                  std::span<std::byte> workspace, cudaStream_t queue);
void conv_product(const ConvShape& shape, const ConvGradWeight& tensors, Multiply multiply,
                  std::span<std::byte> workspace, cudaStream_t queue);

}  // namespace tandem::cuda
