// Storage types on the device: conversion to and from float, and 16-byte groups of elements. Arithmetic is
// fp32; a store rounds to nearest even, as the CPU does.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/queue_of.h"
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

// 16 bytes of T, read and written with one instruction. The address must be a multiple of 16.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T value[kSize];
};

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
