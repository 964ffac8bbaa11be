#include <type_traits>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/groups.cuh"
#include "tandem/kernels/cuda/nccl/sum_parts.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

// A thread sums kSize neighbouring elements over all parts. A group of fp32 beside one of 16 bits is twice as
// long, and goes as two.
template <int kSize, typename T>
__device__ __forceinline__ void load(const T* address, float (&x)[kSize]) {
  constexpr int kGroup = kSize * sizeof(T) > 16 ? 16 / sizeof(T) : kSize;
#pragma unroll
  for (int first = 0; first < kSize; first += kGroup) {
    const Group<T, kGroup> group = load_group<kGroup>(address + first);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) x[first + i] = to_float(group.value[i]);
  }
}

template <int kSize, typename T>
__device__ __forceinline__ void store(T* address, const float (&x)[kSize]) {
  constexpr int kGroup = kSize * sizeof(T) > 16 ? 16 / sizeof(T) : kSize;
#pragma unroll
  for (int first = 0; first < kSize; first += kGroup) {
    Group<T, kGroup> group;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) group.value[i] = from_float<T>(x[first + i]);
    store_group(address + first, group);
  }
}

template <int kSize, typename Part, typename Dst>
__global__ void __launch_bounds__(kThreads)
    sum_parts_kernel(const Part* parts, const Part* own, int rank, int num_parts, Dst* dst, int64_t elems,
                     bool accumulate) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kSize;
  if (at >= elems) return;
  float sum[kSize], x[kSize];
  load(rank == 0 ? own + at : parts + at, sum);
#pragma unroll 4
  for (int part = 1; part < num_parts; ++part) {
    load(part == rank ? own + at : parts + part * elems + at, x);
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum[i] += x[i];
  }
  if (accumulate) {
    load(dst + at, x);
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum[i] += x[i];
  }
  store(dst + at, sum);
}

template <int kSize, typename Part, typename Dst>
void launch(const PartSum& sum, cudaStream_t queue) {
  const int64_t groups = sum.elems / kSize;
  const auto blocks = static_cast<unsigned>((groups + kThreads - 1) / kThreads);
  sum_parts_kernel<kSize><<<blocks, kThreads, 0, queue>>>(
      static_cast<const Part*>(sum.parts), static_cast<const Part*>(sum.own), sum.rank, sum.num_parts,
      static_cast<Dst*>(sum.dst), sum.elems, sum.accumulate);
  check_launch("sum_parts");
}

// Groups of 16 bytes of the parts' type where every part begins at a multiple of that; else single elements.
template <typename Part, typename Dst>
void choose(const PartSum& sum, cudaStream_t queue) {
  constexpr int kSize = 16 / sizeof(Part);
  const bool aligned = is_aligned(sum.parts, 16) && is_aligned(sum.own, 16) && is_aligned(sum.dst, 16);
  if (aligned && sum.elems % kSize == 0) return launch<kSize, Part, Dst>(sum, queue);
  launch<1, Part, Dst>(sum, queue);
}

}  // namespace

void sum_parts(const PartSum& sum, cudaStream_t queue) {
  if (sum.elems == 0) return;
  for_storage(sum.part_dtype, [&](auto* type) {
    using Part = std::remove_pointer_t<decltype(type)>;
    if (sum.dst_dtype == DType::F32) return choose<Part, float>(sum, queue);
    if (sum.dst_dtype == sum.part_dtype) return choose<Part, Part>(sum, queue);
    if constexpr (std::is_same_v<Part, float>) {
      if (sum.dst_dtype == DType::BF16) return choose<float, __nv_bfloat16>(sum, queue);
      if (sum.dst_dtype == DType::F16) return choose<float, __half>(sum, queue);
    }
    TANDEM_CHECK(false, "sum_parts: {} into {}", dtype_name(sum.part_dtype), dtype_name(sum.dst_dtype));
  });
}

}  // namespace tandem::cuda
