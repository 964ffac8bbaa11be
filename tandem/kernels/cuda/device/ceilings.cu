#include "tandem/kernels/cuda/device/ceilings.h"

#include <cuda_fp8.h>

#include <algorithm>
#include <memory>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/device/queue.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/gemm/gemm.h"

namespace tandem::cuda {
namespace {

struct Free {
  void operator()(std::byte* at) const { cudaFree(at); }
};
using DeviceBytes = std::unique_ptr<std::byte, Free>;

DeviceBytes allocate(size_t bytes) {  // null where there is not as much
  void* data = nullptr;
  if (cudaMalloc(&data, bytes) == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is not the next launch's
    return nullptr;
  }
  check_launch("cudaMalloc");
  return DeviceBytes(static_cast<std::byte*>(data));
}

// Numbers in [-1, 1) without a pattern: products of zeros draw less power and run faster than training does.
__device__ __forceinline__ float noise(int64_t i) {
  uint32_t bits = static_cast<uint32_t>(i) * 2654435761u + 12345u;
  bits ^= bits >> 15;
  bits *= 2246822519u;
  bits ^= bits >> 13;
  return static_cast<float>(bits) / 2147483648.0f - 1;
}
template <typename T>
__global__ void fill_noise(T* out, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < count) out[i] = from_float<T>(noise(i));
}
__global__ void fill_noise(__nv_fp8_storage_t* out, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < count) out[i] = __nv_cvt_float_to_fp8(noise(i), __NV_SATFINITE, __NV_E4M3);
}
__global__ void set_one(float* out) { *out = 1; }

void fill(std::byte* to, DType dtype, int64_t count, cudaStream_t queue) {
  const auto blocks = static_cast<unsigned>((count + 255) / 256);
  if (dtype == DType::F8E4M3) {
    fill_noise<<<blocks, 256, 0, queue>>>(reinterpret_cast<__nv_fp8_storage_t*>(to), count);
  } else {
    for_storage(dtype, [&]<typename T>(T*) {
      fill_noise<<<blocks, 256, 0, queue>>>(reinterpret_cast<T*>(to), count);
    });
  }
  check_launch("fill_noise");
}

// The best of a few runs of `work`, in seconds.
template <typename Work>
double best_seconds(const Queue& queue, Work&& work) {
  const Event begin(true), end(true);
  double best = 1e9;
  for (int trial = 0; trial < 8; ++trial) {
    begin.record(queue);
    work();
    end.record(queue);
    end.wait();
    best = std::min(best, end.seconds_since(begin));
  }
  return best;
}

}  // namespace

double measure_matrix_peak(DType storage) {
  const int64_t size = storage == DType::F32 ? 4096 : 8192;
  const DType out = is_fp8(storage) ? DType::BF16 : storage;
  const Gemm gemm{.m = size, .n = size, .k = size, .trans_b = true, .in = storage, .out = out};
  const auto bytes = [&](DType dtype) { return static_cast<size_t>(size * size * dtype_bytes(dtype)); };
  const DeviceBytes a = allocate(bytes(storage)), b = allocate(bytes(storage)), d = allocate(bytes(out));
  const DeviceBytes workspace = allocate(kGemmWorkspace), scale = allocate(sizeof(float));
  if (!a || !b || !d || !workspace || !scale) return 0;
  const Queue queue;
  fill(a.get(), storage, size * size, queue.get());
  fill(b.get(), storage, size * size, queue.get());
  auto* one = reinterpret_cast<float*>(scale.get());
  set_one<<<1, 1, 0, queue.get()>>>(one);
  check_launch("set_one");
  const GemmTensors tensors{.a = a.get(), .b = b.get(), .d = d.get(), .scale_a = one, .scale_b = one};
  const std::span scratch(workspace.get(), kGemmWorkspace);
  gemm_prepare(gemm, tensors, scratch, queue.get());
  const double seconds = best_seconds(queue, [&] { gemm_run(gemm, tensors, scratch, queue.get()); });
  return 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) / seconds;
}

namespace {

__global__ void __launch_bounds__(256) read_all(const uint4* from, int64_t count, uint32_t* to) {
  uint32_t sum = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * 256;
#pragma unroll 8
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x; i < count; i += step) {
    const uint4 words = __ldcs(from + i);
    sum += words.x ^ words.y ^ words.z ^ words.w;
  }
  if (sum == 1) *to = sum;  // never, of zeros: but the compiler does not know
}

}  // namespace

double measure_read() {
  constexpr size_t kBytes = size_t{1} << 30;
  const DeviceBytes from = allocate(kBytes);
  if (!from) return 0;
  const Queue queue;
  check(cudaMemsetAsync(from.get(), 0, kBytes, queue.get()), "cudaMemsetAsync");
  const double seconds = best_seconds(queue, [&] {
    read_all<<<2048, 256, 0, queue.get()>>>(reinterpret_cast<const uint4*>(from.get()),
                                            static_cast<int64_t>(kBytes / sizeof(uint4)),
                                            reinterpret_cast<uint32_t*>(from.get()));
    check_launch("read_all");
  });
  return static_cast<double>(kBytes) / seconds;
}

double measure_copy() {
  constexpr size_t kBytes = size_t{512} << 20;
  const DeviceBytes from = allocate(kBytes), to = allocate(kBytes);
  if (!from || !to) return 0;
  const Queue queue;
  const double seconds = best_seconds(queue, [&] {
    check(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, queue.get()),
          "cudaMemcpyAsync");
  });
  return 2.0 * static_cast<double>(kBytes) / seconds;
}

}  // namespace tandem::cuda
