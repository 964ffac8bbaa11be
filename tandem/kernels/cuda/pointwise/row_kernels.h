// Launches over the rows of a matrix: a block is as many threads wide as a row has groups of elements, up to
// all of them, and takes as many rows as that leaves threads for. Nothing is divided on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tandem/runtime/kernel.h"

namespace tandem::cuda {

// The parts of add_pointwise_kernels that live in files of their own.
void add_gated_kernels(KernelRegistry& registry);
void add_dropout_kernels(KernelRegistry& registry);
void add_shape_kernels(KernelRegistry& registry);  // concat, slice, zeros, copy

inline constexpr int kRowThreads = 256;

// The grid's x goes over rows, which may be many, its y over columns.
struct RowLaunch {
  dim3 grid;
  dim3 block;
};

// `columns` groups a row, one a thread; `rows_per_thread` rows a thread, block.y apart.
inline RowLaunch row_launch(int64_t rows, int64_t columns, int rows_per_thread = 1) {
  const auto width =
      static_cast<unsigned>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(columns, kRowThreads))));
  const unsigned height = kRowThreads / width;
  const int64_t rows_per_block = int64_t{height} * rows_per_thread;
  return {dim3(static_cast<unsigned>((rows + rows_per_block - 1) / rows_per_block),
               static_cast<unsigned>((columns + width - 1) / width)),
          dim3(width, height)};
}

}  // namespace tandem::cuda
