#include "tandem/ir/infer.h"

#include <fmt/format.h>

#include <charconv>

#include "tandem/base/error.h"

namespace tandem {
namespace {

using Types = std::vector<TensorType>;

// Statistics, loss sums and partial sums are wider than the tensors they are of.
DType stats_dtype(DType storage) { return storage == DType::F64 ? DType::F64 : DType::F32; }

class Infer {
 public:
  Infer(Op op, std::span<const TensorType> in, const Attrs& attrs) : op_(op), in_(in), attrs_(attrs) {}

  Types run() const {
    switch (op_) {
      case Op::Input:
      case Op::Param:
      case Op::State: TANDEM_CHECK(false, "leaves carry their own type");
      case Op::Matmul: return {matmul()};
      case Op::MatmulGelu: return {matmul(), matmul()};
      case Op::MatmulAcc: {
        const auto [m, n] = product(1, 2);
        require(in_[0].shape == Shape({m, n}), "accumulator {} does not match the product [{},{}]", shape(0),
                m, n);
        return {in_[0]};
      }
      case Op::MatmulBiasAcc: {
        const auto [m, n] = product(2, 3);
        require(in_[0].shape == Shape({m, n}) && in_[1].shape == Shape({m}),
                "accumulators {} and {} do not match the product [{},{}]", shape(0), shape(1), m, n);
        return {in_[0], in_[1]};
      }
      case Op::MatmulGeluGrad: {
        const auto [m, n] = product(0, 1);
        require(in_[2].shape.rows() == m && in_[2].shape.last() == n, "the product [{},{}] does not match {}",
                m, n, shape(2));
        return {in_[2]};
      }
      case Op::Fp8Scales: return {{DType::F32, Shape({in_[0].shape.elems(), 4})}};
      case Op::Fp8WeightScales: return {{DType::F32, Shape({static_cast<int64_t>(in_.size()), 4})}};
      case Op::Fp8Quantize: return quantized(in_[0].shape, 2);
      case Op::Fp8Swiglu: return quantized(halved(0).shape, 2);
      case Op::Fp8SwigluGrad: return quantized(in_[1].shape, 3);
      case Op::Fp8Matmul: return {fp8_product()};
      case Op::Fp8MatmulAcc: {
        const int64_t m = in_[1].shape.rows(), n = in_[2].shape.rows();
        require(in_[1].shape.last() == in_[2].shape.last() && in_[0].shape == Shape({m, n}),
                "accumulator {} does not match {} by {} transposed", shape(0), shape(1), shape(2));
        return {in_[0]};
      }
      case Op::Fp8Ranges: return {in_[0], same(0, 1)};
      case Op::Conv2d: return {conv2d()};
      case Op::Conv2dGradInput:
        return {{in_[0].dtype, Shape({in_[0].shape[0], attr("height"), attr("width"), in_[1].shape[3]})}};
      case Op::Conv2dGradWeight:
      case Op::BiasGrad:
      case Op::EmbeddingGrad:
      case Op::PositionGrad:
      case Op::Rope:
      case Op::RopeGrad: return {in_[0]};
      case Op::LayerNorm: return {in_[0], row_stats(0), row_stats(0)};
      case Op::AddLayerNorm: return {same(0, 1), in_[0], row_stats(0), row_stats(0)};
      case Op::RmsNorm: return {in_[0], row_stats(0)};
      case Op::AddRmsNorm: return {same(0, 1), in_[0], row_stats(0)};
      case Op::LayerNormGrad: return with_more({in_[0], in_[5], in_[6]});
      case Op::RmsNormGrad: return with_more({in_[0], in_[4]});
      case Op::BatchNorm: return {in_[0], channel_stats(0), channel_stats(0), in_[3], in_[4]};
      case Op::BatchNormInfer: return {in_[0]};
      case Op::BatchNormStats: return {channel_pair(0)};
      case Op::BatchNormApply: return {in_[0], channel_stats(0), channel_stats(0), in_[3], in_[4]};
      case Op::BatchNormGradStats: return {channel_pair(0), in_[4], in_[5]};
      case Op::BatchNormGradApply: return {in_[0]};
      case Op::BatchNormGrad:
      case Op::GroupNormGrad: return {in_[0], in_[5], in_[6]};
      case Op::GroupNorm: return group_norm();
      case Op::Attention: return attention();
      case Op::AttentionGrad: return attention_grad();
      case Op::Add: return {same(0, 1)};
      case Op::Scale:
      case Op::Gelu:
      case Op::Relu: return {in_[0]};
      case Op::GeluGrad:
      case Op::ReluGrad: return {same(0, 1)};
      case Op::Swiglu: return {halved(0)};
      case Op::SwigluGrad: return again() ? Types{in_[1], in_[0]} : Types{in_[1]};
      case Op::Concat: return {concat()};
      case Op::Slice:
        require(attr("begin") >= 0 && attr("begin") + attr("size") <= in_[0].shape.last(),
                "[{}, +{}) is outside the last dim of {}", attr("begin"), attr("size"), shape(0));
        return {with_last(0, attr("size"))};
      case Op::Reshape: {
        const Shape target = parse_shape(attrs_.text("shape"));
        require(target.elems() == in_[0].shape.elems(), "{} does not hold as many elements as {}",
                to_string(target), shape(0));
        return {{in_[0].dtype, target}};
      }
      case Op::View: {
        const TensorType part{in_[0].dtype, parse_shape(attrs_.text("shape"))};
        require(in_[0].shape.rank() == 1, "expected a flat buffer, found {}", shape(0));
        require(attr("begin") >= 0 && attr("begin") + part.shape.elems() <= in_[0].shape.elems(),
                "[{}, +{}) is outside {}", attr("begin"), part.shape.elems(), shape(0));
        return {part};
      }
      case Op::Join: return {in_[0]};
      case Op::Zeros:
      case Op::Recv: return {{parse_dtype(attrs_.text("dtype")), parse_shape(attrs_.text("shape"))}};
      case Op::AllGather: return {gathered()};
      case Op::ReduceScatter: return {scattered()};
      case Op::AllReduce:
      case Op::Send: return {in_[0]};
      case Op::Copy:
        if (in_.size() > 1) same(0, 1);
        return {in_[0]};
      case Op::Cast: return {{parse_dtype(attrs_.text("dtype")), in_[0].shape}};
      case Op::MaxPool2d: {
        const TensorType pooled = window(attr("size"), in_[0].shape.last());
        return {pooled, {DType::I32, pooled.shape}};
      }
      case Op::MaxPool2dGrad:
        return {{in_[0].dtype, Shape({in_[0].shape[0], attr("height"), attr("width"), in_[0].shape[3]})}};
      case Op::GlobalAvgPool:
        require(in_[0].shape.rank() == 4, "expected an image batch [B,H,W,C], found {}", shape(0));
        return {{in_[0].dtype, Shape({in_[0].shape[0], in_[0].shape[3]})}};
      case Op::GlobalAvgPoolGrad:
        return {{in_[0].dtype, Shape({in_[0].shape[0], attr("height"), attr("width"), in_[0].shape[1]})}};
      case Op::Embedding: return {embedding()};
      case Op::CrossEntropy: return check_loss(0, 1), Types{{DType::F64, Shape({2})}};
      case Op::CrossEntropyGrad: return check_loss(0, 1), Types{in_[0], {DType::F64, Shape({2})}};
      case Op::LinearCrossEntropy: return {{DType::F64, Shape({2})}};
      case Op::LinearCrossEntropyGrad: return {in_[0], {DType::F64, Shape({2})}, in_[4]};
      case Op::VocabParts: return check_loss(0, 1), Types{{DType::F32, Shape({in_[0].shape.rows(), 4})}};
      case Op::VocabLoss:
        require(in_[0].shape == Shape({attr("size") * in_[1].shape.elems(), 4}),
                "{} is not {} parts for {} targets", shape(0), attr("size"), in_[1].shape.elems());
        return {{DType::F64, Shape({2})}};
      case Op::VocabLossGrad: return check_loss(0, 1), Types{in_[0], {DType::F64, Shape({2})}};
      case Op::AddStats:
        require(in_[0].dtype == DType::F64 && in_[1].dtype == DType::F64, "{} and {} are not f64",
                dtype_name(in_[0].dtype), dtype_name(in_[1].dtype));
        require(in_[1].shape.elems() <= in_[0].shape.elems(), "{} does not hold {}", shape(0), shape(1));
        return {in_[0]};
      case Op::SquareSums: return {{DType::F64, Shape({attr("num_slots") + 1 + in_[1].shape.elems()})}};
      case Op::GlobalNorm: return {{DType::F64, Shape({2})}};
#define TANDEM_CASE(type, name) case Op::type:
        TANDEM_OPTIMIZERS(TANDEM_CASE)
#undef TANDEM_CASE
        return {in_.begin() + 2, in_.end()};
      case Op::ScaleLoss: return check_types({{DType::F32, Shape({1})}, scaler()}), Types{in_[0]};
      case Op::UnscaleHyper:
        return check_types({{DType::F32, Shape({in_[0].shape.elems()})}, scaler()}), Types{in_[0]};
      case Op::NextLossScale: return check_types({scaler(), {DType::F64, Shape({2})}}), Types{in_[0]};
    }
    TANDEM_CHECK(false, "op {}", static_cast<int>(op_));
    return {};
  }

 private:
  template <typename... Args>
  void require(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    if (!condition)
      throw ConfigError("{}: {}", op_name(op_), fmt::format(format, std::forward<Args>(args)...));
  }
  int64_t attr(std::string_view name) const { return attrs_.integer(name); }
  std::string shape(int i) const { return to_string(in_[static_cast<size_t>(i)].shape); }

  bool again() const { return attrs_.integer_or("again", 0) != 0; }
  bool sums() const { return attrs_.integer_or("sums", 0) != 0; }
  Types with_more(Types types) const {  // than every norm's gradient has
    if (again()) types.push_back(in_[1]);
    if (sums()) types.push_back(in_.back());
    return types;
  }
  Types attention_grad() const {
    if (!sums()) return {in_[1]};
    require(in_.size() == 5 && in_[4].shape == Shape({in_[1].shape.last()}),
            "sums of {} need an accumulator of as many columns behind four tensors", shape(1));
    return {in_[1], in_[4]};
  }

  TensorType same(size_t a, size_t b) const {
    require(in_[a] == in_[b], "operands differ: {} {} and {} {}", dtype_name(in_[a].dtype),
            to_string(in_[a].shape), dtype_name(in_[b].dtype), to_string(in_[b].shape));
    return in_[a];
  }
  TensorType with_last(size_t i, int64_t last) const {
    std::vector<int64_t> dims = in_[i].shape.dims();
    dims.back() = last;
    return {in_[i].dtype, Shape(dims)};
  }
  TensorType halved(size_t i) const {
    require(in_[i].shape.last() % 2 == 0, "last dim of {} must be even (gate and up side by side)",
            shape(static_cast<int>(i)));
    return with_last(i, in_[i].shape.last() / 2);
  }
  // A tensor of 8-bit floats as it is, transposed, or both; then `need`, where input `need` is there.
  Types quantized(const Shape& x, size_t need) const {
    const DType dtype = parse_dtype(attrs_.text("dtype"));
    require(is_fp8(dtype), "{} is not an 8-bit float", dtype_name(dtype));
    Types types;
    if (attr("rows") != 0) types.push_back({dtype, x});
    if (attr("columns") != 0) types.push_back({dtype, Shape({x.last(), x.rows()})});
    if (in_.size() > need) types.push_back(in_[need]);
    return types;
  }
  TensorType fp8_product() const {
    require(in_[0].shape.last() == in_[1].shape.last(), "inner sizes of {} and {} differ", shape(0),
            shape(1));
    std::vector<int64_t> dims = in_[0].shape.dims();
    dims.back() = in_[1].shape.rows();
    return {parse_dtype(attrs_.text("dtype")), Shape(dims)};
  }
  TensorType row_stats(size_t i) const { return {stats_dtype(in_[i].dtype), Shape({in_[i].shape.rows()})}; }
  TensorType channel_stats(size_t i) const {
    return {stats_dtype(in_[i].dtype), Shape({in_[i].shape.last()})};
  }

  TensorType channel_pair(size_t i) const {
    return {stats_dtype(in_[i].dtype), Shape({2, in_[i].shape.last()})};
  }
  // The first dim grows or shrinks with the number of ranks; a destination says where, and in which type.
  TensorType gathered() const {
    std::vector<int64_t> dims = in_[0].shape.dims();
    dims[0] *= attr("size");
    return placed({in_[0].dtype, Shape(dims)});
  }
  TensorType scattered() const {
    std::vector<int64_t> dims = in_[0].shape.dims();
    require(dims[0] % attr("size") == 0, "{} ranks do not divide the first dim of {}", attr("size"),
            shape(0));
    dims[0] /= attr("size");
    return placed({attrs_.has("dtype") ? parse_dtype(attrs_.text("dtype")) : in_[0].dtype, Shape(dims)});
  }
  TensorType placed(const TensorType& result) const {
    if (in_.size() < 2) return result;
    require(in_[1].shape == result.shape, "destination {} is not {}", shape(1), to_string(result.shape));
    return in_[1];
  }

  // Rows and columns of op(a) op(b), leading dims of both collapsed.
  std::pair<int64_t, int64_t> product(size_t a, size_t b) const {
    const Shape& sa = in_[a].shape;
    const Shape& sb = in_[b].shape;
    const bool ta = attr("trans_a") != 0, tb = attr("trans_b") != 0;
    const int64_t m = ta ? sa.last() : sa.rows(), ka = ta ? sa.rows() : sa.last();
    const int64_t n = tb ? sb.rows() : sb.last(), kb = tb ? sb.last() : sb.rows();
    require(ka == kb, "inner sizes differ: {} of {} and {} of {}", ka, to_string(sa), kb, to_string(sb));
    return {m, n};
  }
  TensorType matmul() const {
    const auto [m, n] = product(0, 1);
    if (in_.size() > 2) require(in_[2].shape == Shape({n}), "bias {} does not match {} columns", shape(2), n);
    TensorType type = attr("trans_a") != 0 ? TensorType{in_[0].dtype, Shape({m, n})} : with_last(0, n);
    if (attrs_.integer_or("wide", 0) != 0) type.dtype = stats_dtype(type.dtype);
    return type;
  }
  TensorType window(int64_t size, int64_t channels) const {
    const Shape& x = in_[0].shape;
    require(x.rank() == 4, "expected an image batch [B,H,W,C], found {}", shape(0));
    const auto extent = [&](int64_t length) {
      return (length + 2 * attr("pad") - size) / attr("stride") + 1;
    };
    require(extent(x[1]) > 0 && extent(x[2]) > 0, "a {0}x{0} window does not fit into {1}", size, shape(0));
    return {in_[0].dtype, Shape({x[0], extent(x[1]), extent(x[2]), channels})};
  }
  TensorType conv2d() const {
    const Shape& w = in_[1].shape;
    require(w.rank() == 4 && w[1] == w[2], "expected a weight [out,k,k,in], found {}", shape(1));
    require(w[3] == in_[0].shape.last(), "weight {} does not match input {}", shape(1), shape(0));
    return window(w[1], w[0]);
  }
  Types group_norm() const {
    const int64_t groups = attr("groups");
    require(in_[0].shape.last() % groups == 0, "{} groups do not divide {} channels", groups,
            in_[0].shape.last());
    const TensorType stats{stats_dtype(in_[0].dtype), Shape({in_[0].shape[0] * groups})};
    return {in_[0], stats, stats};
  }
  Types attention() const {
    const Shape& qkv = in_[0].shape;
    const int64_t heads = attr("heads"), kv_heads = attr("kv_heads");
    require(qkv.rank() == 3, "expected packed qkv [B,T,(heads+2*kv_heads)*head_dim], found {}", shape(0));
    require(heads % kv_heads == 0, "{} kv heads do not divide {} heads", kv_heads, heads);
    require(qkv[2] % (heads + 2 * kv_heads) == 0, "{} heads and {} kv heads do not divide {}", heads,
            kv_heads, qkv[2]);
    const int64_t head_dim = qkv[2] / (heads + 2 * kv_heads);
    return {with_last(0, heads * head_dim), {stats_dtype(in_[0].dtype), Shape({qkv[0], heads, qkv[1]})}};
  }
  TensorType concat() const {
    int64_t last = 0;
    for (const TensorType& type : in_) {
      require(type.shape.rows() == in_[0].shape.rows() && type.dtype == in_[0].dtype,
              "operands {} and {} differ", shape(0), to_string(type.shape));
      last += type.shape.last();
    }
    return with_last(0, last);
  }
  TensorType embedding() const {
    std::vector<int64_t> dims = in_[0].shape.dims();
    if (in_.size() > 2) {
      require(in_[2].shape == Shape({dims.back(), in_[1].shape.last()}),
              "positions {} do not match ids {} and table {}", shape(2), shape(0), shape(1));
    }
    dims.push_back(in_[1].shape.last());
    return {in_[1].dtype, Shape(dims)};
  }
  void check_loss(size_t logits, size_t targets) const {
    require(in_[logits].shape.rows() == in_[targets].shape.elems(), "{} rows of logits and {} targets",
            in_[logits].shape.rows(), in_[targets].shape.elems());
  }
  static TensorType scaler() { return {DType::F64, Shape({kScalerSlots})}; }
  void check_types(const Types& expected) const {
    for (size_t i = 0; i < expected.size(); ++i) {
      require(in_[i] == expected[i], "expected {} {}, found {} {}", dtype_name(expected[i].dtype),
              to_string(expected[i].shape), dtype_name(in_[i].dtype), to_string(in_[i].shape));
    }
  }

  Op op_;
  std::span<const TensorType> in_;
  const Attrs& attrs_;
};

}  // namespace

std::vector<TensorType> infer_outputs(Op op, std::span<const TensorType> in, const Attrs& attrs) {
  return Infer(op, in, attrs).run();
}

std::vector<TensorType> input_types(const Graph& graph, const Node& node) {
  std::vector<TensorType> types;
  types.reserve(node.inputs.size());
  for (Value value : node.inputs) types.push_back(graph.type(value));
  return types;
}

Value append(Graph& graph, Op op, std::vector<Value> inputs, Attrs attrs, int32_t block, Phase phase) {
  Node node{op, std::move(inputs), std::move(attrs), {}, block, phase, {}};
  node.outputs = infer_outputs(op, input_types(graph, node), node.attrs);
  return graph.add(std::move(node));
}

Shape parse_shape(std::string_view text) {
  std::vector<int64_t> dims;
  while (!text.empty()) {
    int64_t dim = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), dim);
    if (error != std::errc() || dim < 0) throw ConfigError("shape '{}': expected numbers such as 2,3", text);
    dims.push_back(dim);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (!text.empty() && text[0] == ',') text.remove_prefix(1);
  }
  return Shape(dims);
}

std::string shape_attr(const std::vector<int64_t>& dims) { return fmt::format("{}", fmt::join(dims, ",")); }
std::string shape_attr(const Shape& shape) { return shape_attr(shape.dims()); }

}  // namespace tandem
