// Attention over packed queries, keys and values: qkv[B, T, (heads + 2 kv_heads) * head_dim], query heads
// first. {scratch}, if there, is how many bytes the gradient's kernel should work in.
//
// Which keys a query at i sees: all, with {causal: 1} those at j <= i, with {window: W} only those at
// j > i - W, with {segments: 1} only those whose number in `segments` is that of i. What is seen has the
// score s = scale (q . k), scale being 1 / sqrt(head_dim) where there is none, or with {softcap} cap tanh(s /
// cap).
#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

// A number for each token.
void check_numbers(const Operands& in, size_t i, const Shape& qkv, std::string_view what) {
  in.require(in[i] == TensorType{DType::I32, Shape({qkv[0], qkv[1]})},
             "expected {} i32[{},{}] of tokens, found {}{}", what, qkv[0], qkv[1], dtype_name(in[i].dtype),
             in.show(i));
}

Types attention_types(const Operands& in) {
  const Shape& qkv = in.shape(0);
  const int64_t heads = in.attr("heads"), kv_heads = in.attr("kv_heads");
  in.require(qkv.rank() == 3, "expected packed qkv [B,T,(heads+2*kv_heads)*head_dim], found {}", in.show(0));
  in.require(heads % kv_heads == 0, "{} kv heads do not divide {} heads", kv_heads, heads);
  in.require(qkv[2] % (heads + 2 * kv_heads) == 0, "{} heads and {} kv heads do not divide {}", heads,
             kv_heads, qkv[2]);
  in.require(in.attr_or("window", 1) > 0, "expected a window of at least 1, found {}",
             in.attr_or("window", 1));
  in.require(!in.has("window") || in.attr("causal") != 0, "a window is for causal attention");
  if (in.is_set("segments")) check_numbers(in, 1, qkv, "segments");
  const int64_t head_dim = qkv[2] / (heads + 2 * kv_heads);
  return {in.with_last(0, heads * head_dim), {stats_dtype(in[0].dtype), Shape({qkv[0], heads, qkv[1]})}};
}

Types attention_grad_types(const Operands& in) {
  if (in.is_set("segments")) check_numbers(in, 4, in.shape(1), "segments");
  if (!in.is_set("sums")) return {in[1]};
  const size_t sums = in.size() - 1;
  in.require(in.shape(sums) == Shape({in.shape(1).last()}),
             "sums of {} need an accumulator of as many columns, found {}", in.show(1), in.show(sums));
  return {in[1], in[sums]};
}

// Of so many products of T x T scores with head_dim columns; causal attention does half of each, and with a
// window W only what lies within it: W for each query, but for the first W - 1.
int64_t score_flops(const Node& node, const TensorType& qkv, int64_t products) {
  const int64_t heads = node.attrs.integer("heads"), kv_heads = node.attrs.integer("kv_heads");
  const int64_t head_dim = qkv.shape[2] / (heads + 2 * kv_heads);
  const int64_t tokens = qkv.shape[1];
  const int64_t of_score = products * 2 * qkv.shape[0] * heads * head_dim;
  const int64_t window = node.attrs.integer_or("window", tokens);
  if (window < tokens) return of_score * (window * tokens - window * (window - 1) / 2);
  const int64_t full = of_score * tokens * tokens;
  return node.attrs.integer("causal") != 0 ? full / 2 : full;
}

void attention_grad(Context& c, int32_t id) {
  const Value qkv = c.input(id);
  std::vector<Value> inputs = {c.dy(id), qkv, {id, 0}, {id, 1}};
  if (c.node(id).inputs.size() > 1) inputs.push_back(c.input(id, 1));
  c.add(qkv, c.emit(Op::AttentionGrad, inputs, c.node(id).attrs));
}

Types rope_types(const Operands& in) {
  const int64_t head_dim = in.shape(0).last() / (in.attr("heads") + 2 * in.attr("kv_heads"));
  const int64_t dims = in.attr_or("dims", head_dim);
  in.require(dims > 0 && dims % 2 == 0 && dims <= head_dim,
             "expected an even number of features to turn, at most {}, found {}", head_dim, dims);
  in.require(!in.is_set("positions") || !in.is_set("at"), "positions of all tokens, or of the first");
  if (in.is_set("positions")) check_numbers(in, 1, in.shape(0), "positions");
  if (in.is_set("at")) check_position(in, 1);
  return {in[0]};
}

StatedList<AttrInfo> rope_attrs() {
  return {integer("heads"),          integer("kv_heads"),         real("theta"),
          optional(integer("dims")), optional(text("scaling")),   optional(integer("positions")),
          optional(integer("at")),   optional(integer("context"))};
}

// What says who sees whom, and how scores are made.
StatedList<AttrInfo> attention_attrs(std::initializer_list<AttrInfo> more) {
  std::vector<AttrInfo> attrs = {integer("heads"),
                                 integer("kv_heads"),
                                 integer("causal"),
                                 optional(integer("window")),
                                 optional(real("softcap")),
                                 optional(real("scale")),
                                 optional(integer("segments")),
                                 optional(integer("scratch"))};
  attrs.insert(attrs.end(), more);
  return StatedList<AttrInfo>(std::move(attrs));
}

void rope_grad(Context& c, int32_t id) {
  std::vector<Value> inputs = c.node(id).inputs;
  inputs[0] = c.dy(id);
  c.add(c.input(id), c.emit(Op::RopeGrad, inputs, c.node(id).attrs));
}

}  // namespace

std::vector<OpInfo> attention_ops() {
  return {
      {.op = Op::Rope,
       .name = "rope",
       .meaning =
           "features i and i + dims/2 of each query and key head, i < dims/2, turned by position t times "
           "frequency i of rope_frequencies(theta, dims, scaling, T), times its factor; dims: the whole "
           "head where not given; the other features stay. With {positions: 1} t is the token's number "
           "there, with {at: 1} the first row is at position[0], else it is the place in the sequence; "
           "{context} is the T of the frequencies where the rows are not all",
       .kind = OpKind::Kernel,
       .inputs = {"qkv", when("positions", "positions"), when("at", "position")},
       .outputs = {in_place("qkv")},
       .attrs = rope_attrs(),
       .infer = rope_types,
       .cost = kMovesItsBytes,
       .remake = Remake::WithBlock,
       .split = Split::Heads,
       .gradient = rope_grad},
      {.op = Op::RopeGrad,
       .name = "rope_grad",
       .meaning = "the inverse rotation, times the same factor",
       .kind = OpKind::Kernel,
       .inputs = {"dqkv", when("positions", "positions")},
       .outputs = {in_place("dqkv")},
       .attrs = rope_attrs(),
       .infer = rope_types,
       .cost = kMovesItsBytes,
       .remake = Remake::Never,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::Attention,
       .name = "attention",
       .meaning = "out[B,T,heads*head_dim]; lse[B,heads,T], the logarithm of each row's sum of exponentials",
       .kind = OpKind::Kernel,
       .inputs = {"qkv", when("segments", "segments")},
       .outputs = {"out", "lse"},
       .attrs = attention_attrs({}),
       .infer = attention_types,
       // scores, and their product with the values
       .cost = multiplies(
           [](const Node& node, std::span<const TensorType> in) { return score_flops(node, in[0], 2); }),
       .remake = Remake::WithBlock,
       .split = Split::Heads,
       .gradient = attention_grad},
      {.op = Op::AttentionGrad,
       .name = "attention_grad",
       .meaning = "dqkv; acc_bias += its column sums",
       .kind = OpKind::Kernel,
       .inputs = {"dout", "qkv", "out", "lse", when("segments", "segments"), when("sums", "acc_bias")},
       .outputs = {"dqkv", in_place("acc_bias")},
       .attrs = attention_attrs({optional(integer("sums")), optional(integer("fresh"))}),
       .infer = attention_grad_types,
       // the scores again, and the gradients of queries, keys, values and weights
       .cost = multiplies(
           [](const Node& node, std::span<const TensorType> in) { return score_flops(node, in[1], 5); }),
       .remake = Remake::Never,
       .split = Split::Never,
       .gradient = kNoGradient},
  };
}

}  // namespace tandem::ops
