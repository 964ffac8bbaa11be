// The epilogues of a product as passes of their own, before or after it: for the shapes and types that the
// library has no such epilogue for, and where its product is so much faster without that the pass pays.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tandem/base/dtype.h"

namespace tandem::cuda {

// Each row of d[rows, cols] = bias. d is of the bias's type, or f32.
void spread_bias(DType bias_dtype, const void* bias, DType dtype, void* d, int64_t rows, int64_t cols,
                 cudaStream_t queue);
// d = gelu(pre).
void apply_gelu(DType dtype, const void* pre, void* d, int64_t elems, cudaStream_t queue);
// d *= gelu'(pre).
void apply_gelu_slope(DType dtype, const void* pre, void* d, int64_t elems, cudaStream_t queue);
// acc += x.
void add_vector(const float* x, float* acc, int64_t elems, cudaStream_t queue);

}  // namespace tandem::cuda
