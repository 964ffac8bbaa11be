// The patches of images: row r holds, as a row of the weight does, the kernel * kernel * in elements that
// pixel r of y is made of, zeros where they lie outside of the image.
#pragma once

#include <cuda_runtime_api.h>

#include "tandem/kernels/cuda/image/conv_shape.h"

namespace tandem::cuda {

// Rows [first, first + rows) of x's patches.
void gather_patches(const ConvShape& shape, const void* x, int64_t first, int64_t rows, void* patches,
                    cudaStream_t queue);
// dx of `images` images: the sum over all places of a pixel in their patches, which are f32, in the order of
// the kernel's rows and columns.
void collect_patches(const ConvShape& shape, const float* patches, int64_t images, void* dx,
                     cudaStream_t queue);
// acc (+)= x, where x is of the storage type.
void add_rounded(DType type, const void* x, float* acc, int64_t elems, bool fresh, cudaStream_t queue);

}  // namespace tandem::cuda
