#include "tandem/kernels/cuda/gemm/gemm_passes.h"

#include <algorithm>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/groups.cuh"
#include "tandem/kernels/cuda/pointwise/gelu.cuh"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroups = 2;  // of 16 bytes, in flight a thread and tensor

// d = gelu(pre), or d *= gelu'(pre). kSize elements move at once; the elements behind the last group of kSize
// are the first block's.
template <typename T, int kSize, bool kSlope>
__global__ void __launch_bounds__(kThreads) gelu_pass(const T* pre, T* d, int64_t elems) {
  using Elements = Group<T, kSize>;
  const auto* from = reinterpret_cast<const Elements*>(pre);
  auto* to = reinterpret_cast<Elements*>(d);
  const int64_t num_groups = elems / kSize;
  const int64_t first = int64_t{blockIdx.x} * (kGroups * kThreads) + threadIdx.x;
  Elements x[kGroups], y[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int64_t at = first + g * kThreads;
    if (at >= num_groups) continue;
    x[g] = from[at];
    if constexpr (kSlope) y[g] = to[at];
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int64_t at = first + g * kThreads;
    if (at >= num_groups) continue;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      const float value = to_float(x[g].value[i]);
      if constexpr (kSlope) {
        y[g].value[i] = from_float<T>(to_float(y[g].value[i]) * gelu_slope(value));
      } else {
        y[g].value[i] = from_float<T>(gelu(value));
      }
    }
    to[at] = y[g];
  }
  if (blockIdx.x == 0 && threadIdx.x < elems % kSize) {
    const int64_t at = elems - 1 - threadIdx.x;
    const float value = to_float(pre[at]);
    d[at] = from_float<T>(kSlope ? to_float(d[at]) * gelu_slope(value) : gelu(value));
  }
}

template <bool kSlope>
void launch_gelu_pass(DType dtype, const void* pre, void* d, int64_t elems, cudaStream_t queue) {
  const bool aligned = is_aligned(pre, 16) && is_aligned(d, 16);
  for_storage(dtype, [&]<typename T>(T*) {
    constexpr int kSize = Pack<T>::kSize;
    const int64_t block = int64_t{kGroups} * kThreads * (aligned ? kSize : 1);
    const auto blocks = static_cast<unsigned>((elems + block - 1) / block);
    const auto* from = static_cast<const T*>(pre);
    auto* to = static_cast<T*>(d);
    if (aligned) {
      gelu_pass<T, kSize, kSlope><<<blocks, kThreads, 0, queue>>>(from, to, elems);
    } else {
      gelu_pass<T, 1, kSlope><<<blocks, kThreads, 0, queue>>>(from, to, elems);
    }
  });
  check_launch("gelu_pass");
}

template <typename B, typename T>
__global__ void __launch_bounds__(kThreads)
    spread_bias_pass(const B* bias, T* d, int64_t rows, int64_t cols) {
  const int64_t col = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (col >= cols) return;
  const T value = from_float<T>(to_float(bias[col]));
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) d[row * cols + col] = value;
}

__global__ void __launch_bounds__(kThreads) add_vector_pass(const float* x, float* acc, int64_t elems) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < elems) acc[i] += x[i];
}

unsigned blocks_over(int64_t elems) { return static_cast<unsigned>((elems + kThreads - 1) / kThreads); }

}  // namespace

void spread_bias(DType bias_dtype, const void* bias, DType dtype, void* d, int64_t rows, int64_t cols,
                 cudaStream_t queue) {
  TANDEM_CHECK(dtype == bias_dtype || dtype == DType::F32);
  const dim3 grid(blocks_over(cols), static_cast<unsigned>(std::min<int64_t>(rows, 4096)));
  for_storage(bias_dtype, [&]<typename B>(B*) {
    const auto* from = static_cast<const B*>(bias);
    if (dtype == DType::F32) {
      spread_bias_pass<<<grid, kThreads, 0, queue>>>(from, static_cast<float*>(d), rows, cols);
    } else {
      spread_bias_pass<<<grid, kThreads, 0, queue>>>(from, static_cast<B*>(d), rows, cols);
    }
  });
  check_launch("spread_bias_pass");
}

void apply_gelu(DType dtype, const void* pre, void* d, int64_t elems, cudaStream_t queue) {
  launch_gelu_pass<false>(dtype, pre, d, elems, queue);
}

void apply_gelu_slope(DType dtype, const void* pre, void* d, int64_t elems, cudaStream_t queue) {
  launch_gelu_pass<true>(dtype, pre, d, elems, queue);
}

void add_vector(const float* x, float* acc, int64_t elems, cudaStream_t queue) {
  add_vector_pass<<<blocks_over(elems), kThreads, 0, queue>>>(x, acc, elems);
  check_launch("add_vector_pass");
}

}  // namespace tandem::cuda
