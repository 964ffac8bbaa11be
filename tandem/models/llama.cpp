// Llama and its relatives: Mistral, Qwen 2 and 3, Gemma 2 and 3, Phi 3, SmolLM 3, OLMo 2 and 3, Granite. RMS
// norms, rotary positions, grouped heads, gated feed-forward; what tells them apart are keys of the config.
// Gate and up are one matrix, gate first, so that each block reads its input once.
#include <algorithm>

#include "tandem/models/model.h"

namespace tandem {
namespace {

class Decoder {
 public:
  Decoder(Builder& b, const ModelConfig& config) : b_(b), c_(config), kv_heads_(config.num_kv_heads()) {}

  void build() {
    Value x = dropped(scaled(b_.embedding(c_.vocab, c_.width, /*positions=*/false), c_.embed_scale));
    for (int32_t layer = 0; layer < c_.layers; ++layer) {
      const auto block = b_.block(layer);
      x = b_.add(x, after(attention(before(x, "norm1"), layer), "post_norm1"));
      x = b_.add(x, after(feed_forward(before(x, "norm2")), "post_norm2"));
    }
    x = norm(x, "norm");
    const Value logits = c_.tied ? b_.matmul(x, b_.param_named("embed.weight"), /*trans_b=*/true)
                                 : b_.linear(x, c_.vocab, "head", {.bias = false, .dims = "vocab,width"});
    b_.cross_entropy(capped(scaled(logits, c_.logit_scale), c_.logit_softcap));
  }

 private:
  Value scaled(Value x, double factor) { return factor == 1 ? x : b_.scale(x, factor); }
  Value dropped(Value x) { return b_.dropout(x, c_.dropout); }
  Value capped(Value x, double cap) { return cap == 0 ? x : b_.softcap(x, cap); }
  Value norm(Value x, std::string_view name) { return b_.rms_norm(x, name, c_.norm_eps, c_.norm_plus_one); }

  // What half a block reads of the stream, and what it adds to it.
  Value before(Value x, std::string_view name) {
    return c_.norm_place == NormPlace::After ? x : norm(x, name);
  }
  Value after(Value x, std::string_view name) {
    if (c_.norm_place != NormPlace::Before) x = norm(x, name);
    return dropped(scaled(x, c_.residual_scale));
  }

  static bool holds(const std::vector<int64_t>& layers, int32_t layer) {
    return std::find(layers.begin(), layers.end(), layer) != layers.end();
  }

  Value attention(Value x, int32_t layer) {
    const int64_t window = holds(c_.full_layers, layer) ? 0 : c_.window;
    const int64_t columns = (c_.heads + 2 * kv_heads_) * c_.head_width();
    Value qkv = b_.linear(x, columns, "qkv", {.bias = c_.qkv_bias, .dims = "heads,width"});
    if (c_.qk_norm != QkNorm::None) {
      qkv = b_.qk_norm(qkv, c_.heads, kv_heads_,
                       {.eps = c_.norm_eps, .all = c_.qk_norm == QkNorm::All, .plus_one = c_.norm_plus_one});
    }
    if (!holds(c_.no_rope_layers, layer)) qkv = b_.rope(qkv, c_.heads, kv_heads_, positions(window != 0));
    const Value attended = b_.attention(qkv, c_.heads, kv_heads_,
                                        {.window = window < c_.context ? window : 0,
                                         .softcap = c_.attention_softcap,
                                         .scale = c_.attention_scale});
    return b_.linear(attended, c_.width, "out", {.bias = c_.out_bias, .dims = "width,heads"});
  }

  RopeOptions positions(bool windowed) const {
    const int64_t dims = c_.rope_dims == c_.head_width() ? 0 : c_.rope_dims;
    if (windowed && c_.rope_local_theta != 0) return {.theta = c_.rope_local_theta, .dims = dims};
    return {.theta = c_.rope_theta, .dims = dims, .scaling = c_.rope_scaling};
  }

  Value feed_forward(Value x) {
    const Value gate_up =
        b_.linear(x, 2 * c_.ffn_width(), "gate_up", {.bias = c_.ffn_bias, .dims = "ffn,width"});
    const Value hidden = c_.activation == GatedActivation::Gelu ? b_.geglu(gate_up) : b_.swiglu(gate_up);
    return b_.linear(hidden, c_.width, "down", {.bias = c_.ffn_bias, .dims = "width,ffn"});
  }

  Builder& b_;
  const ModelConfig& c_;
  int64_t kv_heads_;
};

}  // namespace

void build_llama(Builder& b, const ModelConfig& config) { Decoder(b, config).build(); }

}  // namespace tandem
