// The image families: each adds its kernels for the storage types f32, bf16 and f16. Images are NHWC.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tandem/kernels/cpu/pointwise/pointwise.h"
#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

void add_conv_kernels(KernelRegistry& registry);
void add_batch_norm_kernels(KernelRegistry& registry);
void add_batch_norm_sync_kernels(KernelRegistry& registry);
void add_group_norm_kernels(KernelRegistry& registry);
void add_pool_kernels(KernelRegistry& registry);

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// [begin, end) of part `index` when `total` items are cut into parts of `size`.
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
constexpr Range part(int64_t total, int64_t size, int64_t index) {
  return {index * size, std::min(total, (index + 1) * size)};
}

// One element of a small tensor: a scale, a shift, a bias.
inline float weight_at(const TensorArg& tensor, int64_t i) {
  switch (tensor.type.dtype) {
    case DType::BF16: return to_float(tensor.as<BFloat16>()[i]);
    case DType::F16: return to_float(tensor.as<Half>()[i]);
    default: return tensor.as<float>()[i];
  }
}

inline const void* offset_elems(const void* base, DType dtype, int64_t elems) {
  return static_cast<const std::byte*>(base) + elems * dtype_bytes(dtype);
}
inline void* offset_elems(void* base, DType dtype, int64_t elems) {
  return static_cast<std::byte*>(base) + elems * dtype_bytes(dtype);
}

}  // namespace tandem::cpu
