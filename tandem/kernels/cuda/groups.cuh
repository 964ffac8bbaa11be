// A few elements that are read and written with one instruction: 16 bytes of the wider type where the tensors
// allow it, one element where they do not. The same kernel serves both.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::cuda {

template <typename T, int kSize>
struct alignas(sizeof(T) * kSize) Group {
  T value[kSize];
};

template <int kSize, typename T>
__device__ __forceinline__ Group<T, kSize> load_group(const T* address) {
  return *reinterpret_cast<const Group<T, kSize>*>(address);
}
template <int kSize, typename T>
__device__ __forceinline__ void store_group(T* address, const Group<T, kSize>& group) {
  *reinterpret_cast<Group<T, kSize>*>(address) = group;
}

inline bool is_aligned(const void* address, size_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

}  // namespace tandem::cuda
