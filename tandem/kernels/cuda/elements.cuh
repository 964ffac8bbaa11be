// Storage types on the device: conversion to and from float, and 16-byte groups of elements. Arithmetic is
// fp32; a store rounds to nearest even, as the CPU does.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/device/queue_of.h"
#include "tandem/runtime/kernel.h"
#include "tandem/runtime/storage.h"

namespace tandem::cuda {

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}

// The elements of a pack or a group, all at once. Two of 16 bits share a register: shift and mask take them
// out with an instruction each, where one by one it is up to two.
template <typename T, int kSize>
__device__ __forceinline__ void to_floats(const T (&values)[kSize], float (&out)[kSize]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16> && kSize % 2 == 0) {
    const auto* pairs = reinterpret_cast<const uint32_t*>(values);
#pragma unroll
    for (int i = 0; i < kSize; i += 2) {
      out[i] = __uint_as_float(pairs[i / 2] << 16);
      out[i + 1] = __uint_as_float(pairs[i / 2] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kSize; ++i) out[i] = to_float(values[i]);
  }
}

// 16 bytes of T, read and written with one instruction. The address must be a multiple of 16.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T value[kSize];
};

// Rounds two at a time, which is one instruction for the 16-bit types.
template <typename T>
__device__ __forceinline__ Pack<T> round_pack(const float (&values)[Pack<T>::kSize]) {
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; i += 2) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      *reinterpret_cast<__nv_bfloat162*>(pack.value + i) = __floats2bfloat162_rn(values[i], values[i + 1]);
    } else if constexpr (std::is_same_v<T, __half>) {
      *reinterpret_cast<__half2*>(pack.value + i) = __floats2half2_rn(values[i], values[i + 1]);
    } else {
      pack.value[i] = values[i], pack.value[i + 1] = values[i + 1];
    }
  }
  return pack;
}
template <typename T>
__device__ __forceinline__ Pack<T> load_pack(const T* address) {
  return *reinterpret_cast<const Pack<T>*>(address);
}
// For bytes that are read once: they do not push others out of the caches.
template <typename T>
__device__ __forceinline__ Pack<T> load_pack_once(const T* address) {
  Pack<T> pack;
  *reinterpret_cast<int4*>(&pack) = __ldcs(reinterpret_cast<const int4*>(address));
  return pack;
}
template <typename T>
__device__ __forceinline__ void store_pack(T* address, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(address) = pack;
}
template <typename T>
__device__ __forceinline__ void store_pack_once(T* address, const Pack<T>& pack) {
  __stcs(reinterpret_cast<int4*>(address), *reinterpret_cast<const int4*>(&pack));
}

// Sums and maxima over a warp, in a fixed order: every lane gets the result.
__device__ __forceinline__ float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}
__device__ __forceinline__ double warp_sum(double x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}

// Calls fn with a null pointer of the device type that stores `dtype`: fn(static_cast<float*>(nullptr)).
template <typename Fn>
void for_storage(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::F32: return fn(static_cast<float*>(nullptr));
    case DType::BF16: return fn(static_cast<__nv_bfloat16*>(nullptr));
    case DType::F16: return fn(static_cast<__half*>(nullptr));
    default: TANDEM_CHECK(false, "no storage type on the device: {}", dtype_name(dtype));
  }
}

}  // namespace tandem::cuda
