#include "tandem/kernels/cuda/image/patches.h"

#include <algorithm>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/groups.cuh"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = int64_t{1} << 20;

unsigned blocks_for(int64_t items) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

__device__ __forceinline__ int64_t first_item() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}
__device__ __forceinline__ int64_t item_step() { return static_cast<int64_t>(gridDim.x) * kThreads; }

// An item is a group of channels of one tap of one patch.
template <typename T, int kSize>
__global__ void __launch_bounds__(kThreads)
    gather(const ConvShape s, const T* x, int64_t first, int64_t rows, T* patches) {
  const int groups = static_cast<int>(s.in / kSize), taps = static_cast<int>(s.kernel * s.kernel);
  const int per_row = groups * taps, kernel = static_cast<int>(s.kernel);
  const int64_t patch = taps * s.in;
  for (int64_t i = first_item(); i < rows * per_row; i += item_step()) {
    const int64_t row = i / per_row;
    const int at = static_cast<int>(i - row * per_row), tap = at / groups;
    const int channel = (at - tap * groups) * kSize;
    const int64_t pixel = first + row, line = pixel / s.out_width;
    const int64_t image = line / s.out_height;
    const int64_t h = (line - image * s.out_height) * s.stride - s.pad + tap / kernel;
    const int64_t w = (pixel - line * s.out_width) * s.stride - s.pad + tap % kernel;
    Group<T, kSize> group;
    if (h >= 0 && h < s.height && w >= 0 && w < s.width) {
      group = load_group<kSize>(x + ((image * s.height + h) * s.width + w) * s.in + channel);
    } else {
#pragma unroll
      for (int k = 0; k < kSize; ++k) group.value[k] = from_float<T>(0.0f);
    }
    store_group(patches + row * patch + tap * s.in + channel, group);
  }
}

// An item is an element of dx.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    collect(const ConvShape s, const float* patches, int64_t images, T* dx) {
  const int64_t elems = images * s.height * s.width * s.in, patch = s.kernel * s.kernel * s.in;
  for (int64_t i = first_item(); i < elems; i += item_step()) {
    const int64_t pixel = i / s.in, channel = i - pixel * s.in;
    const int64_t line = pixel / s.width, image = line / s.height;
    const int64_t h = line - image * s.height + s.pad, w = pixel - line * s.width + s.pad;
    float sum = 0;
    for (int64_t kh = 0; kh < s.kernel; ++kh) {
      const int64_t oh = (h - kh) / s.stride;
      if (h < kh || oh * s.stride != h - kh || oh >= s.out_height) continue;
      for (int64_t kw = 0; kw < s.kernel; ++kw) {
        const int64_t ow = (w - kw) / s.stride;
        if (w < kw || ow * s.stride != w - kw || ow >= s.out_width) continue;
        const int64_t row = (image * s.out_height + oh) * s.out_width + ow;
        sum += patches[row * patch + (kh * s.kernel + kw) * s.in + channel];
      }
    }
    dx[i] = from_float<T>(sum);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) add_to(const T* x, float* acc, int64_t elems, bool fresh) {
  for (int64_t i = first_item(); i < elems; i += item_step())
    acc[i] = fresh ? to_float(x[i]) : acc[i] + to_float(x[i]);
}

}  // namespace

void gather_patches(const ConvShape& shape, const void* x, int64_t first, int64_t rows, void* patches,
                    cudaStream_t queue) {
  for_storage(shape.type, [&]<typename T>(T*) {
    constexpr int kSize = 16 / static_cast<int>(sizeof(T));
    const auto* from = static_cast<const T*>(x);
    auto* to = static_cast<T*>(patches);
    if (shape.in % kSize == 0 && is_aligned(from, 16) && is_aligned(to, 16)) {
      gather<T, kSize>
          <<<blocks_for(rows * shape.patch() / kSize), kThreads, 0, queue>>>(shape, from, first, rows, to);
    } else {
      gather<T, 1><<<blocks_for(rows * shape.patch()), kThreads, 0, queue>>>(shape, from, first, rows, to);
    }
  });
  check_launch("gather_patches");
}

void collect_patches(const ConvShape& shape, const float* patches, int64_t images, void* dx,
                     cudaStream_t queue) {
  const int64_t elems = images * shape.height * shape.width * shape.in;
  for_storage(shape.type, [&]<typename T>(T*) {
    collect<T><<<blocks_for(elems), kThreads, 0, queue>>>(shape, patches, images, static_cast<T*>(dx));
  });
  check_launch("collect_patches");
}

void add_rounded(DType type, const void* x, float* acc, int64_t elems, bool fresh, cudaStream_t queue) {
  for_storage(type, [&]<typename T>(T*) {
    add_to<T><<<blocks_for(elems), kThreads, 0, queue>>>(static_cast<const T*>(x), acc, elems, fresh);
  });
  check_launch("add_rounded");
}

}  // namespace tandem::cuda
