// GPT-2: learned positions, LayerNorm before each half of a block, GELU, tied head. Projections back into
// the residual stream start smaller, by the square root of their number, as in the original.
#include <cmath>

#include "tandem/models/model.h"

namespace tandem {

void build_gpt2(Builder& b, const ModelConfig& config) {
  const int64_t kv_heads = config.num_kv_heads();
  const int64_t qkv = (config.heads + 2 * kv_heads) * config.head_width();
  const double residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));

  Value x = b.dropout(b.embedding(config.vocab, config.width, /*positions=*/true), config.dropout);
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const auto block = b.block(layer);
    const Value projected = b.linear(b.layer_norm(x, "norm1", config.norm_eps), qkv, "qkv",
                                     {.bias = config.qkv_bias, .dims = "heads,width"});
    const Value attended = b.attention(projected, config.heads, kv_heads);
    const Value out =
        b.linear(attended, config.width, "out", {.init_std = residual_std, .dims = "width,heads"});
    x = b.add(x, b.dropout(out, config.dropout));
    const Value up =
        b.linear(b.layer_norm(x, "norm2", config.norm_eps), config.ffn_width(), "up", {.dims = "ffn,width"});
    const Value down =
        b.linear(b.gelu(up), config.width, "down", {.init_std = residual_std, .dims = "width,ffn"});
    x = b.add(x, b.dropout(down, config.dropout));
  }
  x = b.layer_norm(x, "norm", config.norm_eps);
  b.cross_entropy(config.tied ? b.matmul(x, b.param_named("embed.weight"), /*trans_b=*/true)
                              : b.linear(x, config.vocab, "head", {.bias = false, .dims = "vocab,width"}));
}

}  // namespace tandem
