// Direct convolution, the engine of Conv2d and Conv2dGradInput: weights are packed once, then every block of
// output pixels is one task that copies its patch and runs register tiles over it. No im2col matrix exists.
#pragma once

#include <cstddef>
#include <span>

#include "tandem/base/thread_pool.h"
#include "tandem/kernels/cpu/conv/conv_patch.h"

namespace tandem::cpu {

// Element (o, r, q, c) of the weight is data[o * out + r * row + q * col + c * in]; strides may be negative.
struct ConvWeight {
  const void* data;
  DType dtype;
  int64_t out, row, col, in;
};

// Where the output pixel (image, row, col) begins, in elements from `data`; its channels are contiguous.
struct ConvTarget {
  void* data;
  DType dtype;
  int64_t image, row, col;
};

size_t direct_conv_workspace(const ConvGeometry& conv, DType dtype, int num_threads);

// `bias`: out_channels floats, or null.
void direct_conv(const ConvGeometry& conv, const void* x, DType dtype, const ConvWeight& weight,
                 const float* bias, const ConvTarget& y, std::span<std::byte> workspace, ThreadPool& pool);

}  // namespace tandem::cpu
