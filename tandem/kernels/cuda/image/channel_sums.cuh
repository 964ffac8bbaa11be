// Sums over the rows of a [rows, channels] tensor, two a channel. The rows are cut by shape only. A thread
// sums its few rows in fp32, everything beyond in double, always in the same order: blocks write their sums,
// and a second kernel adds them up and hands each channel's to a functor.
#pragma once

#include <algorithm>
#include <bit>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/groups.cuh"

namespace tandem::cuda {

inline constexpr int kChannelThreads = 256;
inline constexpr int kRowsAtOnce = 4;        // of a thread: so many loads are on their way
inline constexpr int64_t kMostBlocks = 528;  // whole rounds of an H200's 132 processors
inline constexpr int64_t kLeastRows = 64;    // of a block
inline constexpr int kFinishSplits = 16;     // that a block of finish_sums reads side by side

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct ChannelCut {
  int64_t rows, channels;
  int64_t splits, split_rows;

  ChannelCut(int64_t num_rows, int64_t num_channels) : rows(num_rows), channels(num_channels) {
    const int64_t most = std::max<int64_t>(1, kMostBlocks / ceil_div(channels, 256));
    splits = std::clamp<int64_t>(ceil_div(rows, kLeastRows), 1, most);
    split_rows = ceil_div(rows, splits);
  }
  explicit ChannelCut(const Shape& x) : ChannelCut(x.rows(), x.last()) {}
  size_t partial_bytes() const { return static_cast<size_t>(splits * 2 * channels) * sizeof(double); }
};

// A block is as many threads wide as a row has groups of channels, up to a warp; grid.y goes over the rest.
struct ChannelLaunch {
  dim3 grid, block;
};
inline ChannelLaunch channel_launch(int64_t row_blocks, int64_t channels, int group) {
  const int64_t groups = channels / group;
  const auto width =
      static_cast<unsigned>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(groups, 32))));
  return {dim3(static_cast<unsigned>(row_blocks), static_cast<unsigned>(ceil_div(groups, width))),
          dim3(width, kChannelThreads / width)};
}

template <int kSize>
__device__ __forceinline__ int64_t own_channel() {
  return (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * kSize;
}

template <typename T, int kSize>
__device__ __forceinline__ void load_floats(const T* address, float (&out)[kSize]) {
  const auto group = load_group<kSize>(address);
#pragma unroll
  for (int k = 0; k < kSize; ++k) out[k] = to_float(group.value[k]);
}

// The block's sums of `first` and `second`, to partials[blockIdx.x][2][channels]. All threads come here.
template <int kSize>
__device__ __forceinline__ void write_partials(const double (&first)[kSize], const double (&second)[kSize],
                                               int64_t channels, double* partials) {
  __shared__ double sums[2][kChannelThreads * kSize];
  const int width = static_cast<int>(blockDim.x) * kSize;
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    const int at = static_cast<int>(threadIdx.y) * width + static_cast<int>(threadIdx.x) * kSize + k;
    sums[0][at] = first[k];
    sums[1][at] = second[k];
  }
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (int column = thread; column < 2 * width; column += kChannelThreads) {
    const int kind = column / width, within = column - kind * width;
    const int64_t channel = static_cast<int64_t>(blockIdx.y) * width + within;
    if (channel >= channels) continue;
    double sum = 0;
    for (int y = 0; y < static_cast<int>(blockDim.y); ++y) sum += sums[kind][y * width + within];
    partials[(static_cast<int64_t>(blockIdx.x) * 2 + kind) * channels + channel] = sum;
  }
}

// Calls fn(row, groups[2]...) for the rows of this thread, several loads ahead of their use.
template <int kSize, typename Load, typename Use>
__device__ __forceinline__ void for_own_rows(int64_t begin, int64_t end, const Load& load, const Use& use) {
  using Loaded = decltype(load(begin));
  const int64_t step = blockDim.y;
  for (int64_t row = begin + threadIdx.y; row < end; row += kRowsAtOnce * step) {
    Loaded loaded[kRowsAtOnce];
#pragma unroll
    for (int j = 0; j < kRowsAtOnce; ++j) {
      if (row + j * step < end) loaded[j] = load(row + j * step);
    }
#pragma unroll
    for (int j = 0; j < kRowsAtOnce; ++j) {
      if (row + j * step < end) use(row + j * step, loaded[j]);
    }
  }
}

// Block (32 channels, kFinishSplits): fn(channel, sum of first, sum of second) for each channel.
template <typename Fn>
__global__ void __launch_bounds__(32 * kFinishSplits)
    finish_sums(const double* partials, int splits, int channels, const Fn fn) {
  __shared__ double sums[2][kFinishSplits][32];
  const int channel = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  double first = 0, second = 0;
  if (channel < channels) {
#pragma unroll 8
    for (int split = static_cast<int>(threadIdx.y); split < splits; split += kFinishSplits) {
      const double* from = partials + static_cast<int64_t>(split) * 2 * channels + channel;
      first += from[0];
      second += from[channels];
    }
  }
  sums[0][threadIdx.y][threadIdx.x] = first;
  sums[1][threadIdx.y][threadIdx.x] = second;
  __syncthreads();
  if (threadIdx.y != 0 || channel >= channels) return;
  first = second = 0;
#pragma unroll
  for (int k = 0; k < kFinishSplits; ++k) {
    first += sums[0][k][threadIdx.x];
    second += sums[1][k][threadIdx.x];
  }
  fn(channel, first, second);
}

template <typename Fn>
void launch_finish(const ChannelCut& cut, const double* partials, const Fn& fn, cudaStream_t queue) {
  const auto blocks = static_cast<unsigned>(ceil_div(cut.channels, 32));
  finish_sums<<<blocks, dim3(32, kFinishSplits), 0, queue>>>(partials, static_cast<int>(cut.splits),
                                                             static_cast<int>(cut.channels), fn);
  check_launch("finish_sums");
}

// Calls fn(type, group size): groups of 16 bytes where the tensors allow it, else single channels.
template <typename Fn>
void for_channel_groups(DType dtype, int64_t channels, std::initializer_list<const void*> tensors,
                        const Fn& fn) {
  for_storage(dtype, [&]<typename T>(T* type) {
    constexpr int kSize = 16 / static_cast<int>(sizeof(T));
    const bool whole =
        channels % kSize == 0 && std::all_of(tensors.begin(), tensors.end(), [](const void* tensor) {
          return tensor == nullptr || is_aligned(tensor, 16);
        });
    if (whole) return fn(type, std::integral_constant<int, kSize>());
    fn(type, std::integral_constant<int, 1>());
  });
}

}  // namespace tandem::cuda
