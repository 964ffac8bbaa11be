// Sums of the columns of a matrix, the gradient of a bias: in a fixed order, with nothing but the matrix read
// from memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "tandem/base/dtype.h"
#include "tandem/runtime/kernel.h"

namespace tandem::cuda {

size_t column_sums_workspace(DType dtype, int64_t rows, int64_t cols);

// sums[cols] (+)= column sums of x[rows, cols].
void column_sums(DType dtype, const void* x, int64_t rows, int64_t cols, float* sums, bool accumulate,
                 std::span<std::byte> workspace, cudaStream_t queue);

// sums[cols] (+)= the sums of chunks of rows, chunk_sums[count, cols].
void add_chunk_sums(const float* chunk_sums, int64_t count, int64_t cols, float* sums, bool accumulate,
                    cudaStream_t queue);

void add_bias_grad_kernels(KernelRegistry& registry);  // bias_grad

}  // namespace tandem::cuda
