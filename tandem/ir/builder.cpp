#include "tandem/ir/builder.h"

#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/ir/infer.h"

namespace tandem {

Builder Builder::for_tokens(int64_t batch, int64_t context) {
  Builder b;
  const TensorType ids{DType::I32, Shape({batch, context})};
  b.tokens_ = b.graph_.add({Op::Input, {}, {}, {ids}, kNoBlock, Phase::Forward, "tokens"});
  b.targets_ = b.graph_.add({Op::Input, {}, {}, {ids}, kNoBlock, Phase::Forward, "targets"});
  return b;
}

Builder Builder::for_images(int64_t batch, int64_t size, int64_t channels) {
  Builder b;
  const TensorType images{DType::F32, Shape({batch, size, size, channels})};
  const TensorType labels{DType::I32, Shape({batch})};
  b.tokens_ = b.graph_.add({Op::Input, {}, {}, {images}, kNoBlock, Phase::Forward, "images"});
  b.targets_ = b.graph_.add({Op::Input, {}, {}, {labels}, kNoBlock, Phase::Forward, "targets"});
  return b;
}

Builder::Guard::~Guard() {
  builder_.prefix_ = std::move(prefix_);
  builder_.block_ = block_;
}

Builder::Guard Builder::scope(std::string_view name) {
  std::string saved = prefix_;
  prefix_ += std::string(name) + ".";
  return {*this, std::move(saved), block_};
}

Builder::Guard Builder::block(int32_t index) {
  std::string saved = prefix_;
  const int32_t outer = block_;
  prefix_ += fmt::format("blocks.{}.", index);
  block_ = index;
  return {*this, std::move(saved), outer};
}

void Builder::check_new(const std::string& name) const {
  if (graph_.find(name).valid())
    throw ConfigError("{}: the model has two parameters of that name; use a scope", name);
}

Value Builder::param_named(std::string_view name) const {
  const Value value = graph_.find(name);
  if (!value.valid()) throw ConfigError("{}: the model has no parameter of that name", name);
  return value;
}

Value Builder::param(std::string_view name, Shape shape, std::string init, std::string dims) {
  check_new(full_name(name));
  Attrs attrs{{"init", std::move(init)}};
  if (!dims.empty()) attrs.set("dims", std::move(dims));
  return graph_.add(
      {Op::Param, {}, attrs, {{DType::F32, std::move(shape)}}, block_, Phase::Forward, full_name(name)});
}

Value Builder::state(std::string_view name, Shape shape, std::string init) {
  check_new(full_name(name));
  const Attrs attrs{{"category", "weights"}, {"init", std::move(init)}};
  return graph_.add(
      {Op::State, {}, attrs, {{DType::F32, std::move(shape)}}, block_, Phase::Forward, full_name(name)});
}

Value Builder::apply(Op op, std::vector<Value> inputs, Attrs attrs) {
  return append(graph_, op, std::move(inputs), std::move(attrs), block_);
}

Value Builder::linear(Value x, int64_t out, std::string_view name, const LinearOptions& options) {
  const auto in_scope = scope(name);
  const int64_t in = type(x).shape.last();
  std::vector<Value> inputs = {
      x, param("weight", Shape({out, in}), fmt::format("normal:{}", options.init_std), options.dims)};
  if (options.bias)
    inputs.push_back(param("bias", Shape({out}), "zeros", options.dims.substr(0, options.dims.find(','))));
  return apply(Op::Matmul, inputs, {{"trans_a", int64_t{0}}, {"trans_b", int64_t{1}}});
}

Value Builder::matmul(Value a, Value b, bool trans_b) {
  return apply(Op::Matmul, {a, b}, {{"trans_a", int64_t{0}}, {"trans_b", int64_t{trans_b}}});
}

Value Builder::embedding(int64_t vocab, int64_t width, bool positions) {
  std::vector<Value> inputs = {tokens_,
                               param("embed.weight", Shape({vocab, width}), "normal:0.02", "vocab,width")};
  if (positions) {
    const int64_t context = type(tokens_).shape.last();
    inputs.push_back(param("pos.weight", Shape({context, width}), "normal:0.02", "context,width"));
  }
  return apply(Op::Embedding, inputs);
}

Value Builder::layer_norm(Value x, std::string_view name, double eps) {
  const auto in_scope = scope(name);
  const Shape width({type(x).shape.last()});
  const Value gamma = param("weight", width, "ones"), beta = param("bias", width, "zeros");
  return apply(Op::LayerNorm, {x, gamma, beta}, {{"eps", eps}});
}

Value Builder::rms_norm(Value x, std::string_view name, double eps, bool plus_one) {
  const auto in_scope = scope(name);
  Attrs attrs{{"eps", eps}};
  if (plus_one) attrs.set("plus_one", int64_t{1});
  const Value gamma = param("weight", Shape({type(x).shape.last()}), plus_one ? "zeros" : "ones");
  return apply(Op::RmsNorm, {x, gamma}, std::move(attrs));
}

Value Builder::attention(Value qkv, int64_t heads, int64_t kv_heads, bool causal) {
  return apply(Op::Attention, {qkv}, {{"heads", heads}, {"kv_heads", kv_heads}, {"causal", int64_t{causal}}});
}

Value Builder::attention(Value qkv, int64_t heads, int64_t kv_heads, const AttentionOptions& options) {
  Attrs attrs{{"heads", heads}, {"kv_heads", kv_heads}, {"causal", int64_t{options.causal}}};
  if (options.window != 0) attrs.set("window", options.window);
  if (options.softcap != 0) attrs.set("softcap", options.softcap);
  if (options.scale != 0) attrs.set("scale", options.scale);
  std::vector<Value> inputs = {qkv};
  if (options.segments.valid()) {
    attrs.set("segments", int64_t{1});
    inputs.push_back(options.segments);
  }
  return apply(Op::Attention, std::move(inputs), std::move(attrs));
}

Value Builder::attention(Value q, Value k, Value v, int64_t heads, int64_t kv_heads, bool causal) {
  return attention(apply(Op::Concat, {q, k, v}), heads, kv_heads, causal);
}

Value Builder::rope(Value qkv, int64_t heads, int64_t kv_heads, double theta) {
  return apply(Op::Rope, {qkv}, {{"heads", heads}, {"kv_heads", kv_heads}, {"theta", theta}});
}

Value Builder::rope(Value qkv, int64_t heads, int64_t kv_heads, const RopeOptions& options) {
  Attrs attrs{{"heads", heads}, {"kv_heads", kv_heads}, {"theta", options.theta}};
  if (options.dims != 0) attrs.set("dims", options.dims);
  if (options.scaling != "none") attrs.set("scaling", options.scaling);
  return apply(Op::Rope, {qkv}, std::move(attrs));
}

Value Builder::qk_norm(Value qkv, int64_t heads, int64_t kv_heads, const QkNormOptions& options) {
  Attrs attrs{{"heads", heads}, {"kv_heads", kv_heads}, {"eps", options.eps}};
  if (options.all) attrs.set("all", int64_t{1});
  if (options.plus_one) attrs.set("plus_one", int64_t{1});
  const int64_t head_dim = type(qkv).shape.last() / (heads + 2 * kv_heads);
  const char* init = options.plus_one ? "zeros" : "ones";
  const Value q = param("q_norm.weight", Shape({options.all ? heads * head_dim : head_dim}), init);
  const Value k = param("k_norm.weight", Shape({options.all ? kv_heads * head_dim : head_dim}), init);
  return apply(Op::QkNorm, {qkv, q, k}, std::move(attrs));
}

Value Builder::segments() {
  if (!segments_.valid())
    segments_ = graph_.add({Op::Input, {}, {}, {type(tokens_)}, kNoBlock, Phase::Forward, "segments"});
  return segments_;
}

Value Builder::dropout(Value x, double rate) {
  if (!(rate >= 0 && rate < 1))
    throw ConfigError("dropout: expected a rate of at least 0 and below 1, found {}", rate);
  if (rate == 0) return x;
  const TensorType number{DType::I32, Shape({2})};
  if (!sample_.valid())
    sample_ = graph_.add({Op::Input, {}, {}, {number}, kNoBlock, Phase::Forward, std::string(kSampleInput)});
  const int64_t rows = type(x).shape.rows() / type(tokens_).shape[0];
  return apply(Op::Dropout, {x, sample_}, {{"rate", rate}, {"site", num_dropouts_++}, {"rows", rows}});
}

Value Builder::reshape(Value x, Shape shape) {
  return apply(Op::Reshape, {x}, {{"shape", shape_attr(shape)}});
}

Value Builder::conv2d(Value x, int64_t out, int64_t kernel, int64_t stride, std::string_view name) {
  const auto in_scope = scope(name);
  const int64_t in = type(x).shape.last();
  // He initialisation over the fan out, as ResNets use.
  const double std = std::sqrt(2.0 / static_cast<double>(out * kernel * kernel));
  const Value weight =
      param("weight", Shape({out, kernel, kernel, in}), fmt::format("normal:{}", std), "out,k,k,in");
  return apply(Op::Conv2d, {x, weight}, {{"stride", stride}, {"pad", kernel / 2}});
}

Value Builder::batch_norm(Value x, std::string_view name, double eps, double momentum, bool sync) {
  const auto in_scope = scope(name);
  const Shape channels({type(x).shape.last()});
  const Value gamma = param("weight", channels, "ones"), beta = param("bias", channels, "zeros");
  const Value mean = state("running_mean", channels, "zeros"), var = state("running_var", channels, "ones");
  Attrs attrs{{"eps", eps}, {"momentum", momentum}};
  if (sync) attrs.set("sync", int64_t{1});
  return apply(Op::BatchNorm, {x, gamma, beta, mean, var}, std::move(attrs));
}

Value Builder::group_norm(Value x, int64_t groups, std::string_view name, double eps) {
  const auto in_scope = scope(name);
  const Shape channels({type(x).shape.last()});
  const Value gamma = param("weight", channels, "ones"), beta = param("bias", channels, "zeros");
  return apply(Op::GroupNorm, {x, gamma, beta}, {{"eps", eps}, {"groups", groups}});
}

Value Builder::max_pool(Value x, int64_t size, int64_t stride, int64_t pad) {
  return apply(Op::MaxPool2d, {x}, {{"size", size}, {"stride", stride}, {"pad", pad}});
}

Value Builder::global_avg_pool(Value x) { return apply(Op::GlobalAvgPool, {x}); }

void Builder::metric(std::string_view name, Value x, bool squares) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '/';
  };
  if (name.empty() || !std::ranges::all_of(name, allowed))
    throw ConfigError("metric '{}': expected a name of letters, digits, '.', '_', '-' and '/'", name);
  const std::string output = fmt::format("{}{}", kMetricPrefix, name);
  for (const GraphOutput& known : graph_.outputs()) {
    if (known.name == "stats")
      throw ConfigError("metric '{}': a model ends with cross_entropy; declare it before", name);
    if (known.name == output) throw ConfigError("metric '{}': two have this name", name);
  }
  // With what it is of, wherever it is asked for: a stage of a pipeline has both.
  const int32_t block = graph_.node(x.node).block;
  graph_.add_output(output, append(graph_, Op::Measure, {x}, {{"squares", int64_t{squares}}}, block));
}

void Builder::cross_entropy(Value logits) {
  // The loss turns the logits into their gradient in place. What a product, scale or softcap made nobody
  // reads again; anything else may be needed by its own gradient, and is copied.
  const Op maker = graph_.node(logits.node).op;
  if (maker != Op::Matmul && maker != Op::Scale && maker != Op::Softcap) logits = scale(logits, 1.0);
  graph_.add_output("logits", logits);
  graph_.add_output("stats", apply(Op::CrossEntropy, {logits, targets_}));
}

}  // namespace tandem
