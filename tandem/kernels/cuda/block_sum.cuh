// The sum over a block in a fixed order, and the sum of many values by one block.
#pragma once

#include "tandem/kernels/cuda/elements.cuh"

namespace tandem::cuda {

// Every thread calls it and gets the sum.
template <int kThreads>
__device__ __forceinline__ double block_sum(double x) {
  __shared__ double warp_sums[kThreads / 32];
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += warp_sums[warp];
  __syncthreads();  // before the next call writes
  return sum;
}

// The sum of value(0) ... value(count - 1), for every thread of the block.
template <int kThreads, typename Value>
__device__ __forceinline__ double block_sum_of(int64_t count, const Value& value) {
  double sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += value(i);
  return block_sum<kThreads>(sum);
}

}  // namespace tandem::cuda
