// Built with -fmad=false, as base/normal_numbers.h asks. Random numbers come four at a time, so a thread
// makes the four neighbours of the tensor that share a block of bits, and stores those that the run has.
#include "tandem/kernels/cuda/pointwise/initialize.h"

#include "tandem/base/normal_numbers.h"
#include "tandem/base/split_float.h"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/streamed_group.cuh"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 4;  // elements a thread

// As the CPU stores them: NaNs, too, get the bits they have there.
template <typename T>
__device__ __forceinline__ T rounded(float x) {
  return from_float<T>(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 rounded<__nv_bfloat16>(float x) {
  return __ushort_as_bfloat16(split_bits(__float_as_uint(x)).high);
}
template <>
__device__ __forceinline__ int16_t rounded<int16_t>(float x) {
  return split_bits(__float_as_uint(x)).low;
}
template <>
__device__ __forceinline__ __half rounded<__half>(float x) {
  if (x == x) return from_float<__half>(x);
  return __ushort_as_half(static_cast<unsigned short>(((__float_as_uint(x) >> 16) & 0x8000) | 0x7e00));
}

// The elements [begin, end) of a group that goes to `dst`; all of them at once where the address allows it.
template <typename T>
__device__ __forceinline__ void store(T* dst, const float (&x)[kGroup], int64_t begin, int64_t end) {
  Group<T, kGroup> group;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) group.value[i] = rounded<T>(x[i]);
  if (begin <= 0 && end >= kGroup && reinterpret_cast<uintptr_t>(dst) % sizeof group == 0) {
    write_once(reinterpret_cast<Group<T, kGroup>*>(dst), group);
    return;
  }
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    if (i >= begin && i < end) dst[i] = group.value[i];
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(T* buffer, const __grid_constant__ StartingValues values, int64_t groups_a_run) {
  const int64_t task = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t run = task / groups_a_run;
  if (run >= values.num_runs) return;
  const int64_t run_begin = values.first + run * values.stride;  // in the tensor
  const int64_t group = run_begin / kGroup + task % groups_a_run;
  const int64_t skipped = run_begin - group * kGroup;  // elements of the group before the run
  float x[kGroup] = {1, 1, 1, 1};
  if (values.normal) {
    normals_of(philox_block(values.seed, values.stream, static_cast<uint64_t>(group)), x);
#pragma unroll
    for (float& element : x) element *= values.std;
  }
  store(buffer + values.offset + run * values.run_elems - skipped, x, skipped, skipped + values.run_elems);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    round_kernel(T* dst, const float* src, int64_t elems, bool aligned) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
  if (at >= elems) return;
  float x[kGroup] = {};
  if (aligned && at + kGroup <= elems) {
    const auto group = read_once(reinterpret_cast<const Group<float, kGroup>*>(src + at));
#pragma unroll
    for (int i = 0; i < kGroup; ++i) x[i] = group.value[i];
  } else {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (at + i < elems) x[i] = src[at + i];
    }
  }
  store(dst + at, x, 0, elems - at);
}

// Calls fn with a null pointer of the device type that stores `dtype`, low halves included.
template <typename Fn>
void for_stored(DType dtype, Fn&& fn) {
  if (dtype == DType::I16) return fn(static_cast<int16_t*>(nullptr));
  for_storage(dtype, fn);
}

unsigned blocks_for(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

}  // namespace

void fill_initial(void* buffer, DType dtype, const StartingValues& values, cudaStream_t queue) {
  if (values.num_runs == 0 || values.run_elems == 0) return;
  // One more than a run's length asks for: it may begin within a group.
  const int64_t groups_a_run = (values.run_elems + kGroup - 1) / kGroup + 1;
  for_stored(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    fill_kernel<<<blocks_for(values.num_runs * groups_a_run), kThreads, 0, queue>>>(static_cast<T*>(buffer),
                                                                                    values, groups_a_run);
    check_launch("fill_initial");
  });
}

void round_to(void* dst, DType dtype, const float* src, int64_t elems, cudaStream_t queue) {
  if (elems == 0) return;
  for_stored(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    round_kernel<<<blocks_for((elems + kGroup - 1) / kGroup), kThreads, 0, queue>>>(
        static_cast<T*>(dst), src, elems, is_aligned(src, sizeof(Group<float, kGroup>)));
    check_launch("round_to");
  });
}

}  // namespace tandem::cuda
