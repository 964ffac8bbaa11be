// A row of logits, worked on by one block: its maximum and its sum of exponentials in one pass, in which a
// larger maximum rescales what a thread has summed before, and then its gradient. Each thread meets the same
// groups of elements in both passes, so what it keeps of them in shared memory in between needs no barrier.
#pragma once

#include <climits>
#include <cmath>
#include <type_traits>

#include "tandem/kernels/cuda/block_sum.cuh"
#include "tandem/kernels/cuda/streamed_group.cuh"

namespace tandem::cuda {

inline constexpr int kLogitThreads = 512;
inline constexpr int kLogitBatch = 4;  // groups that a thread reads before it uses the first

// Groups of a row that stay in shared memory for the second pass: those before `count`.
template <typename T, int kSize>
struct KeptGroups {
  Group<T, kSize>* groups = nullptr;
  int count = 0;
};

struct RowMass {
  float largest;
  float sum;  // of exp(logit - largest)
  int first;  // column of the first of the largest, 0 if all are -inf
};

// To two units in the last place; what is under 2^-126 counts as nothing, which spares the care for
// subnormals.
__device__ __forceinline__ float fast_exp(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));
  return power;
}

// What one thread has seen of a row.
struct ThreadMass {
  float largest = -INFINITY;
  float sum = 0;
  int group = -1;  // the first that holds the largest
};

template <typename T, int kSize>
__device__ __forceinline__ ThreadMass thread_mass(const Group<T, kSize>* row, int num_groups,
                                                  KeptGroups<T, kSize> kept) {
  ThreadMass mass;
  for (int begin = threadIdx.x; begin < num_groups; begin += kLogitBatch * kLogitThreads) {
    Group<T, kSize> batch[kLogitBatch];
#pragma unroll
    for (int k = 0; k < kLogitBatch; ++k) {
      const int i = begin + k * kLogitThreads;
      if (i < num_groups) batch[k] = i < kept.count ? read_once(row + i) : row[i];
    }
    const float before = mass.largest;
#pragma unroll
    for (int k = 0; k < kLogitBatch; ++k) {
      const int i = begin + k * kLogitThreads;
      if (i >= num_groups) continue;
      if (i < kept.count) kept.groups[i] = batch[k];
      float largest = to_float(batch[k].value[0]);
#pragma unroll
      for (int e = 1; e < kSize; ++e) largest = fmaxf(largest, to_float(batch[k].value[e]));
      if (largest > mass.largest) {
        mass.largest = largest;
        mass.group = i;
      }
    }
    if (mass.largest != before) mass.sum *= fast_exp(before - mass.largest);
    // While all logits are -inf there is nothing to sum, but a NaN among them must still reach the sum.
    const float shift = mass.largest == -INFINITY ? 0 : mass.largest;
#pragma unroll
    for (int k = 0; k < kLogitBatch; ++k) {
      if (begin + k * kLogitThreads >= num_groups) continue;
#pragma unroll
      for (int e = 0; e < kSize; ++e) mass.sum += fast_exp(to_float(batch[k].value[e]) - shift);
    }
  }
  return mass;
}

// Every thread of the block calls it, once, and gets the result.
template <typename T, int kSize>
__device__ __forceinline__ RowMass row_mass(const T* logits, int vocab, KeptGroups<T, kSize> kept = {}) {
  __shared__ float warp_largest[kLogitThreads / 32];
  __shared__ float warp_sums[kLogitThreads / 32];
  __shared__ int first;
  const auto* row = reinterpret_cast<const Group<T, kSize>*>(logits);
  ThreadMass mine = thread_mass(row, vocab / kSize, kept);

  const float in_warp = warp_max(mine.largest);
  if (threadIdx.x % 32 == 0) warp_largest[threadIdx.x / 32] = in_warp;
  if (threadIdx.x == 0) first = INT_MAX;
  __syncthreads();
  RowMass mass{warp_largest[0], 0, 0};
  for (int warp = 1; warp < kLogitThreads / 32; ++warp)
    mass.largest = fmaxf(mass.largest, warp_largest[warp]);

  if (mine.largest != mass.largest) {
    mine.sum *= fast_exp(mine.largest - mass.largest);
  } else if (mine.group >= 0) {
    const Group<T, kSize> group = row[mine.group];
    int at = 0;
#pragma unroll
    for (int e = kSize - 1; e >= 0; --e) at = to_float(group.value[e]) == mass.largest ? e : at;
    atomicMin(&first, mine.group * kSize + at);
  }
  const float sum = warp_sum(mine.sum);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  for (int warp = 0; warp < kLogitThreads / 32; ++warp) mass.sum += warp_sums[warp];
  mass.first = first == INT_MAX ? 0 : first;
  return mass;
}

// Of a row whose groups row_mass has kept. Every thread of the block calls it, once, and gets the result.
template <typename T, int kSize>
__device__ __forceinline__ double row_mean(const T* logits, int vocab, KeptGroups<T, kSize> kept) {
  const auto* row = reinterpret_cast<const Group<T, kSize>*>(logits);
  double sum = 0;
  for (int i = threadIdx.x; i < vocab / kSize; i += kLogitThreads) {
    const Group<T, kSize> group = i < kept.count ? kept.groups[i] : row[i];
#pragma unroll
    for (int e = 0; e < kSize; ++e) sum += to_float(group.value[e]);
  }
  return block_sum<kLogitThreads>(sum) / vocab;
}

// Whether this thread writes the group of `column` in the calls below, and so may write the column after
// them.
template <int kSize>
__device__ __forceinline__ bool owns_column(int column) {
  return column / kSize % kLogitThreads == static_cast<int>(threadIdx.x);
}

// logit -> exp(logit - shift) * factor - less, in place.
template <typename T, int kSize>
__device__ __forceinline__ void exp_row(T* logits, int vocab, KeptGroups<T, kSize> kept, float shift,
                                        float factor, float less = 0) {
  auto* row = reinterpret_cast<Group<T, kSize>*>(logits);
  const int num_groups = vocab / kSize;
  for (int begin = threadIdx.x; begin < num_groups; begin += kLogitBatch * kLogitThreads) {
    Group<T, kSize> batch[kLogitBatch];
#pragma unroll
    for (int k = 0; k < kLogitBatch; ++k) {
      const int i = begin + k * kLogitThreads;
      if (i < num_groups) batch[k] = i < kept.count ? kept.groups[i] : read_once(row + i);
    }
#pragma unroll
    for (int k = 0; k < kLogitBatch; ++k) {
      const int i = begin + k * kLogitThreads;
      if (i >= num_groups) continue;
#pragma unroll
      for (int e = 0; e < kSize; ++e)
        batch[k].value[e] =
            from_float<T>(__fsub_rn(__fmul_rn(fast_exp(to_float(batch[k].value[e]) - shift), factor), less));
      write_once(row + i, batch[k]);
    }
  }
}

template <typename T, int kSize>
__device__ __forceinline__ void zero_row(T* logits, int vocab) {
  auto* row = reinterpret_cast<Group<T, kSize>*>(logits);
  Group<T, kSize> zeros;
#pragma unroll
  for (int e = 0; e < kSize; ++e) zeros.value[e] = from_float<T>(0);
  for (int i = threadIdx.x; i < vocab / kSize; i += kLogitThreads) write_once(row + i, zeros);
}

// Calls fn(null pointer of T, width as a std::integral_constant): 16 bytes at once, or element by element
// where rows do not all begin at a multiple of that.
template <typename Fn>
void for_logits(DType dtype, const void* logits, int64_t vocab, const Fn& fn) {
  TANDEM_CHECK(vocab > 0 && vocab < INT_MAX - kLogitBatch * kLogitThreads, "{} logits a row", vocab);
  for_storage(dtype, [&]<typename T>(T* null) {
    constexpr int kWhole = 16 / sizeof(T);
    if (vocab % kWhole == 0 && is_aligned(logits, 16)) {
      fn(null, std::integral_constant<int, kWhole>());
    } else {
      fn(null, std::integral_constant<int, 1>());
    }
  });
}

}  // namespace tandem::cuda
