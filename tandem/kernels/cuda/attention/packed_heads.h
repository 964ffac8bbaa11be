// The shape of packed qkv, [B, T, (heads + 2 kv_heads) * head_dim]: query heads first, then keys, then
// values.
#pragma once

#include <cstdint>

#include "tandem/runtime/kernel.h"

namespace tandem::cuda {

struct PackedHeads {
  int64_t batch, tokens, heads, kv_heads, head_dim;

  int64_t qkv_stride() const { return (heads + 2 * kv_heads) * head_dim; }  // elements of a token
};

// Whether the type and the attributes fit together.
inline bool are_packed_heads(const TensorType& qkv, const Attrs& attrs) {
  const int64_t heads = attrs.integer("heads"), kv_heads = attrs.integer("kv_heads");
  return qkv.shape.rank() == 3 && kv_heads > 0 && heads % kv_heads == 0 &&
         qkv.shape.last() % (heads + 2 * kv_heads) == 0;
}

inline PackedHeads packed_heads(const TensorType& qkv, const Attrs& attrs) {
  const int64_t heads = attrs.integer("heads"), kv_heads = attrs.integer("kv_heads");
  return {qkv.shape[0], qkv.shape[1], heads, kv_heads, qkv.shape.last() / (heads + 2 * kv_heads)};
}

// The parts of add_attention_kernels that live in files of their own.
void add_attention_grad_kernel(KernelRegistry& registry);
void add_rope_kernels(KernelRegistry& registry);
void add_cached_attention_kernel(KernelRegistry& registry);

}  // namespace tandem::cuda
