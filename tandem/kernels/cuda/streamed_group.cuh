// Groups of elements that are used once: read and written so that they do not push others out of the caches.
#pragma once

#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/groups.cuh"

namespace tandem::cuda {

template <typename T, int kSize>
__device__ __forceinline__ Group<T, kSize> read_once(const Group<T, kSize>* address) {
  if constexpr (sizeof(Group<T, kSize>) == 16) {
    Group<T, kSize> group;
    *reinterpret_cast<int4*>(&group) = __ldcs(reinterpret_cast<const int4*>(address));
    return group;
  } else {
    return *address;
  }
}

template <typename T, int kSize>
__device__ __forceinline__ void write_once(Group<T, kSize>* address, const Group<T, kSize>& group) {
  if constexpr (sizeof(Group<T, kSize>) == 16) {
    __stcs(reinterpret_cast<int4*>(address), *reinterpret_cast<const int4*>(&group));
  } else {
    *address = group;
  }
}

}  // namespace tandem::cuda
