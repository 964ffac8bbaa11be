#include "tandem/kernels/cuda/ceilings.h"

#include <algorithm>
#include <memory>

#include "tandem/kernels/cuda/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/gemm.h"
#include "tandem/kernels/cuda/queue.h"

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
template <typename T>
__global__ void fill_noise(T* out, int64_t count) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  uint32_t bits = static_cast<uint32_t>(i) * 2654435761u + 12345u;
  bits ^= bits >> 15;
  bits *= 2246822519u;
  bits ^= bits >> 13;
  out[i] = from_float<T>(static_cast<float>(bits) / 2147483648.0f - 1);
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
  const Gemm gemm{.m = size, .n = size, .k = size, .trans_b = true, .in = storage, .out = storage};
  const auto bytes = static_cast<size_t>(size * size * dtype_bytes(storage));
  const DeviceBytes a = allocate(bytes), b = allocate(bytes), d = allocate(bytes);
  const DeviceBytes workspace = allocate(kGemmWorkspace);
  if (!a || !b || !d || !workspace) return 0;
  const Queue queue;
  for_storage(storage, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const auto blocks = static_cast<unsigned>((size * size + 255) / 256);
    fill_noise<<<blocks, 256, 0, queue.get()>>>(reinterpret_cast<T*>(a.get()), size * size);
    fill_noise<<<blocks, 256, 0, queue.get()>>>(reinterpret_cast<T*>(b.get()), size * size);
    check_launch("fill_noise");
  });
  const GemmTensors tensors{.a = a.get(), .b = b.get(), .d = d.get()};
  const std::span scratch(workspace.get(), kGemmWorkspace);
  gemm_prepare(gemm, tensors, scratch, queue.get());
  const double seconds = best_seconds(queue, [&] { gemm_run(gemm, tensors, scratch, queue.get()); });
  return 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) / seconds;
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
