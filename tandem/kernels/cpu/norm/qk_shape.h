// How packed qkv falls into groups whose norm is taken together.
#pragma once

#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

struct QkShape {
  int64_t rows, stride;        // tokens; elements from one to the next
  int64_t q_groups, k_groups;  // of a token
  int64_t q_width, k_width;    // of a group
  int64_t params() const { return q_width + k_width; }
};

inline QkShape qk_shape(const TensorType& qkv, const Attrs& attrs) {
  const int64_t heads = attrs.integer("heads"), kv_heads = attrs.integer("kv_heads");
  const int64_t width = qkv.shape.last(), head_dim = width / (heads + 2 * kv_heads);
  if (attrs.integer_or("all", 0) != 0)
    return {qkv.shape.rows(), width, 1, 1, heads * head_dim, kv_heads * head_dim};
  return {qkv.shape.rows(), width, heads, kv_heads, head_dim, head_dim};
}

}  // namespace tandem::cpu
