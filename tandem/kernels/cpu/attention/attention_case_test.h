// One shape of attention, for the tests of every device.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tandem/ir/attrs.h"
#include "tandem/ir/graph.h"

namespace tandem::cpu {

struct AttentionCase {
  int64_t batch, tokens, heads, kv_heads, head_dim, causal;
  DType dtype;
  int64_t window = 0;
  double softcap = 0, scale = 0;
  bool segmented = false;

  Attrs attrs() const {
    Attrs attrs{{"heads", heads}, {"kv_heads", kv_heads}, {"causal", causal}};
    if (window != 0) attrs.set("window", window);
    if (softcap != 0) attrs.set("softcap", softcap);
    if (scale != 0) attrs.set("scale", scale);
    if (segmented) attrs.set("segments", int64_t{1});
    return attrs;
  }
  // Runs of 37 tokens, two of which may have the same number though others lie between them.
  std::vector<double> segments() const {
    std::vector<double> values;
    for (int64_t i = 0; i < batch * tokens; ++i) values.push_back(static_cast<double>(i / 37 * 5 % 4));
    return values;
  }
  TensorType qkv() const { return {dtype, {batch, tokens, (heads + 2 * kv_heads) * head_dim}}; }
  TensorType out() const { return {dtype, {batch, tokens, heads * head_dim}}; }
  TensorType lse() const { return {DType::F32, {batch, heads, tokens}}; }
  std::string describe() const {
    return fmt::format("B {} T {} heads {}/{} of {}, causal {}, {}, window {}, cap {}, scale {}, segments {}",
                       batch, tokens, heads, kv_heads, head_dim, causal, dtype_name(dtype), window, softcap,
                       scale, segmented);
  }
};

}  // namespace tandem::cpu
