// How models are written: each call appends nodes and returns a value. A model is a function that takes a
// Builder and calls loss() once:
//
//   Value x = b.embedding(b.tokens(), vocab, width);
//   for (int i = 0; i < layers; ++i) { auto block = b.block(i); x = b.add(x, b.linear(b.gelu(...), width)); }
//   b.cross_entropy(b.linear(b.layer_norm(x), vocab));
//
// Parameters are named by the scopes they are made in ("blocks.0.attn.qkv.weight").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/ir/graph.h"

namespace tandem {

struct LinearOptions {
  bool bias = true;
  double init_std = 0.02;
  std::string dims = "out,in";  // logical dims of the weight, for strategies that split it
};

// Rotary positions: base of the angles, how many features of a head turn (0: all), and how the angles are
// stretched to longer contexts (base/rope_frequencies.h).
struct RopeOptions {
  double theta = 10000.0;
  int64_t dims = 0;
  std::string scaling = "none";
};

// A value of 0 stands for what is not there: no window, no cap, 1 / sqrt(head_dim) as the scale of scores.
struct AttentionOptions {
  bool causal = true;
  int64_t window = 0;  // a token sees itself and window - 1 before it
  double softcap = 0;
  double scale = 0;
  Value segments = {};  // i32 [batch, context]: a token sees tokens of its own number only
};

struct QkNormOptions {
  double eps = 1e-5;
  bool all = false;       // of all heads of a token together, instead of each
  bool plus_one = false;  // times 1 + weight
};

class Builder {
 public:
  // One micro-batch of token sequences [batch, context], or of images [batch, size, size, channels].
  static Builder for_tokens(int64_t batch, int64_t context);
  static Builder for_images(int64_t batch, int64_t size, int64_t channels);

  Value tokens() const { return tokens_; }
  Value images() const { return tokens_; }

  // Scopes end with the returned guard.
  class Guard {
   public:
    Guard(Builder& builder, std::string saved_prefix, int32_t saved_block)
        : builder_(builder), prefix_(std::move(saved_prefix)), block_(saved_block) {}
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Builder& builder_;
    std::string prefix_;
    int32_t block_;
  };
  Guard scope(std::string_view name);  // "attn" -> parameters below are named "...attn.x"
  Guard block(int32_t index);          // "blocks.<index>", and the unit for recompute and sharding

  Value param(std::string_view name, Shape shape, std::string init, std::string dims = "");
  Value state(std::string_view name, Shape shape,
              std::string init);  // fp32, kept with the weights, untrained

  Value linear(Value x, int64_t out, std::string_view name, const LinearOptions& options = {});
  Value matmul(Value a, Value b, bool trans_b = false);
  Value embedding(int64_t vocab, int64_t width, bool positions);
  Value layer_norm(Value x, std::string_view name, double eps = 1e-5);
  Value rms_norm(Value x, std::string_view name, double eps = 1e-5, bool plus_one = false);
  Value attention(Value qkv, int64_t heads, int64_t kv_heads, bool causal = true);
  Value attention(Value qkv, int64_t heads, int64_t kv_heads, const AttentionOptions& options);
  Value attention(Value q, Value k, Value v, int64_t heads, int64_t kv_heads, bool causal = true);
  Value rope(Value qkv, int64_t heads, int64_t kv_heads, double theta = 10000.0);
  Value rope(Value qkv, int64_t heads, int64_t kv_heads, const RopeOptions& options);
  // RMS norms of queries and keys, with the weights q_norm and k_norm.
  Value qk_norm(Value qkv, int64_t heads, int64_t kv_heads, const QkNormOptions& options);
  Value segments();  // the input of that name, for attention within documents
  // In training, drops about `rate` of the elements and scales the others up.
  Value dropout(Value x, double rate);
  Value add(Value a, Value b) { return apply(Op::Add, {a, b}); }
  Value gelu(Value x) { return apply(Op::Gelu, {x}); }
  Value relu(Value x) { return apply(Op::Relu, {x}); }
  Value softcap(Value x, double cap) { return apply(Op::Softcap, {x}, {{"cap", cap}}); }
  Value swiglu(Value gate_up) { return apply(Op::Swiglu, {gate_up}); }
  Value geglu(Value gate_up) { return apply(Op::Geglu, {gate_up}); }
  Value scale(Value x, double factor) { return apply(Op::Scale, {x}, {{"factor", factor}}); }
  Value reshape(Value x, Shape shape);
  Value conv2d(Value x, int64_t out, int64_t kernel, int64_t stride, std::string_view name);
  // `sync`: over the micro-batches of all ranks of the data axis.
  Value batch_norm(Value x, std::string_view name, double eps = 1e-5, double momentum = 0.1,
                   bool sync = false);
  Value group_norm(Value x, int64_t groups, std::string_view name, double eps = 1e-5);
  Value max_pool(Value x, int64_t size, int64_t stride, int64_t pad);
  Value global_avg_pool(Value x);

  // Ends the model: logits against the targets input. Rows whose target is -1 do not count.
  // A number of the model's own in metrics, "metric/NAME": the mean of the elements of x, or of their
  // squares, over all micro-batches and ranks of a step, as it was in training's forward. Before
  // cross_entropy.
  void metric(std::string_view name, Value x, bool squares = false);
  void cross_entropy(Value logits);

  Value param_named(std::string_view name) const;  // full name; throws ConfigError if there is none
  const TensorType& type(Value value) const { return graph_.type(value); }
  Graph take() { return std::move(graph_); }

 private:
  Value apply(Op op, std::vector<Value> inputs, Attrs attrs = {});
  void check_new(const std::string& name) const;
  std::string full_name(std::string_view name) const { return prefix_ + std::string(name); }

  Graph graph_;
  Value tokens_;
  Value targets_;
  Value segments_;
  Value sample_;
  int64_t num_dropouts_ = 0;
  std::string prefix_;
  int32_t block_ = kNoBlock;
};

}  // namespace tandem
