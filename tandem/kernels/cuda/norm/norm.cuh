// What the row norms share: sums over the threads of a row, and when rows can be read in packs.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/groups.cuh"

namespace tandem::cuda {

inline constexpr int kMaxWarps = 32;          // of a block
inline constexpr int kAnyWidthThreads = 128;  // a row's block in the kernels for any width and alignment

// Sums each of kValues values over the row's threads, which are those with one threadIdx.y. Every thread gets
// the same bits. With several warps a row, all threads of the block must come here, and scratch must not be
// the one of the call before.
template <int kValues>
__device__ __forceinline__ void row_sums(float (&values)[kValues], float (&scratch)[kValues][kMaxWarps]) {
  constexpr int kFewWarps = 8;
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.y) * warps;
#pragma unroll
  for (int v = 0; v < kValues; ++v) values[v] = warp_sum(values[v]);
  if (warps == 1) return;
  if (lane == 0) {
#pragma unroll
    for (int v = 0; v < kValues; ++v) scratch[v][first + static_cast<int>(threadIdx.x) / 32] = values[v];
  }
  __syncthreads();
#pragma unroll
  for (int v = 0; v < kValues; ++v) {
    if (warps > kFewWarps) {
      values[v] = warp_sum(lane < warps ? scratch[v][first + lane] : 0.0f);
    } else {
      values[v] = 0;
      for (int w = 0; w < warps; ++w) values[v] += scratch[v][first + w];
    }
  }
}

// A norm's output, which its gradient gives again with the same bits: a sum that no compiler fuses otherwise.
__device__ __forceinline__ float norm_output(float x_hat, float gamma, float beta) {
  return fmaf(x_hat, gamma, beta);
}

// Whether all rows of `width` elements T from these addresses on (null: none) are whole, aligned packs.
template <typename T>
bool rows_are_packs(int64_t width, std::initializer_list<const void*> addresses) {
  return width % Pack<T>::kSize == 0 && std::ranges::all_of(addresses, [](const void* address) {
           return is_aligned(address, sizeof(Pack<T>));
         });
}

// Whether all tensors of [first, last) exist and have the type `dtype`.
inline bool all_of_type(DType dtype, const std::vector<TensorType>& types, size_t first, size_t last) {
  return last <= types.size() && std::all_of(types.begin() + static_cast<ptrdiff_t>(first),
                                             types.begin() + static_cast<ptrdiff_t>(last),
                                             [=](const TensorType& type) { return type.dtype == dtype; });
}

// Where sums over rows go, which blocks have made of their rows: dgamma [, dbeta] [, the sum of dx].
struct ColumnGrads {
  float* to[3];
  int count;
  int width;  // of each
  bool fresh;
};
// Adds up the blocks' partial sums [blocks][count * width], in order.
void combine_columns(const ColumnGrads& grads, const float* partials, int blocks, cudaStream_t queue);

void add_norm_grad_kernels(KernelRegistry& registry);  // LayerNormGrad, RmsNormGrad
void add_qk_norm_kernels(KernelRegistry& registry);    // QkNorm, QkNormGrad

}  // namespace tandem::cuda
