// One shape of attention, for the tests of every device.
#pragma once

#include <fmt/format.h>

#include <string>

#include "tandem/ir/attrs.h"
#include "tandem/ir/graph.h"

namespace tandem::cpu {

struct AttentionCase {
  int64_t batch, tokens, heads, kv_heads, head_dim, causal;
  DType dtype;

  Attrs attrs() const { return {{"heads", heads}, {"kv_heads", kv_heads}, {"causal", causal}}; }
  TensorType qkv() const { return {dtype, {batch, tokens, (heads + 2 * kv_heads) * head_dim}}; }
  TensorType out() const { return {dtype, {batch, tokens, heads * head_dim}}; }
  TensorType lse() const { return {DType::F32, {batch, heads, tokens}}; }
  std::string describe() const {
    return fmt::format("B {} T {} heads {}/{} of {}, causal {}, {}", batch, tokens, heads, kv_heads, head_dim,
                       causal, dtype_name(dtype));
  }
};

}  // namespace tandem::cpu
