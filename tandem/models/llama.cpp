// Llama and its relatives (Mistral, Qwen): RMSNorm, rotary positions, grouped heads, SwiGLU, no biases but
// optionally on qkv. Gate and up are one matrix, gate first, so that each block reads its input once.
#include "tandem/models/model.h"

namespace tandem {

void build_llama(Builder& b, const ModelConfig& config) {
  const int64_t kv_heads = config.num_kv_heads();
  const int64_t qkv = (config.heads + 2 * kv_heads) * config.head_width();

  Value x = b.embedding(config.vocab, config.width, /*positions=*/false);
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    const auto block = b.block(layer);
    Value projected = b.linear(b.rms_norm(x, "norm1", config.norm_eps), qkv, "qkv",
                               {.bias = config.qkv_bias, .dims = "heads,width"});
    projected = b.rope(projected, config.heads, kv_heads, config.rope_theta);
    const Value attended = b.attention(projected, config.heads, kv_heads);
    x = b.add(x, b.linear(attended, config.width, "out", {.bias = false, .dims = "width,heads"}));
    const Value gate_up = b.linear(b.rms_norm(x, "norm2", config.norm_eps), 2 * config.ffn_width(), "gate_up",
                                   {.bias = false, .dims = "ffn,width"});
    x = b.add(x, b.linear(b.swiglu(gate_up), config.width, "down", {.bias = false, .dims = "width,ffn"}));
  }
  x = b.rms_norm(x, "norm", config.norm_eps);
  b.cross_entropy(config.tied ? b.matmul(x, b.param_named("embed.weight"), /*trans_b=*/true)
                              : b.linear(x, config.vocab, "head", {.bias = false, .dims = "vocab,width"}));
}

}  // namespace tandem
