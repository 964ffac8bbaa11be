// Attention over packed queries, keys and values: qkv[B, T, (heads + 2 kv_heads) * head_dim], query heads
// first. {scratch}, if there, is how many bytes the gradient's kernel should work in.
#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

Types attention_types(const Operands& in) {
  const Shape& qkv = in.shape(0);
  const int64_t heads = in.attr("heads"), kv_heads = in.attr("kv_heads");
  in.require(qkv.rank() == 3, "expected packed qkv [B,T,(heads+2*kv_heads)*head_dim], found {}", in.show(0));
  in.require(heads % kv_heads == 0, "{} kv heads do not divide {} heads", kv_heads, heads);
  in.require(qkv[2] % (heads + 2 * kv_heads) == 0, "{} heads and {} kv heads do not divide {}", heads,
             kv_heads, qkv[2]);
  const int64_t head_dim = qkv[2] / (heads + 2 * kv_heads);
  return {in.with_last(0, heads * head_dim), {stats_dtype(in[0].dtype), Shape({qkv[0], heads, qkv[1]})}};
}

Types attention_grad_types(const Operands& in) {
  if (!in.is_set("sums")) return {in[1]};
  in.require(in.shape(4) == Shape({in.shape(1).last()}),
             "sums of {} need an accumulator of as many columns, found {}", in.show(1), in.show(4));
  return {in[1], in[4]};
}

// Of so many products of T x T scores with head_dim columns; causal attention does half of each.
int64_t score_flops(const Node& node, const TensorType& qkv, int64_t products) {
  const int64_t heads = node.attrs.integer("heads"), kv_heads = node.attrs.integer("kv_heads");
  const int64_t head_dim = qkv.shape[2] / (heads + 2 * kv_heads);
  const int64_t full = products * 2 * qkv.shape[0] * heads * qkv.shape[1] * qkv.shape[1] * head_dim;
  return node.attrs.integer("causal") != 0 ? full / 2 : full;
}

void attention_grad(Context& c, int32_t id) {
  const Value qkv = c.input(id);
  c.add(qkv, c.emit(Op::AttentionGrad, {c.dy(id), qkv, {id, 0}, {id, 1}}, c.node(id).attrs));
}

void rope_grad(Context& c, int32_t id) {
  c.add(c.input(id), c.emit(Op::RopeGrad, {c.dy(id)}, c.node(id).attrs));
}

}  // namespace

std::vector<OpInfo> attention_ops() {
  return {
      {.op = Op::Rope,
       .name = "rope",
       .meaning = "rotate-half on queries and keys, position = t",
       .kind = OpKind::Kernel,
       .inputs = {"qkv"},
       .outputs = {in_place("qkv")},
       .attrs = {integer("heads"), integer("kv_heads"), real("theta")},
       .infer = like<0>,
       .cost = kMovesItsBytes,
       .remake = Remake::WithBlock,
       .split = Split::Heads,
       .gradient = rope_grad},
      {.op = Op::RopeGrad,
       .name = "rope_grad",
       .meaning = "the inverse rotation",
       .kind = OpKind::Kernel,
       .inputs = {"dqkv"},
       .outputs = {in_place("dqkv")},
       .attrs = {integer("heads"), integer("kv_heads"), real("theta")},
       .infer = like<0>,
       .cost = kMovesItsBytes,
       .remake = Remake::Never,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::Attention,
       .name = "attention",
       .meaning = "out[B,T,heads*head_dim]; lse[B,heads,T], the logarithm of each row's sum of exponentials",
       .kind = OpKind::Kernel,
       .inputs = {"qkv"},
       .outputs = {"out", "lse"},
       .attrs = {integer("heads"), integer("kv_heads"), integer("causal"), optional(integer("scratch"))},
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
       .inputs = {"dout", "qkv", "out", "lse", when("sums", "acc_bias")},
       .outputs = {"dqkv", in_place("acc_bias")},
       .attrs = {integer("heads"), integer("kv_heads"), integer("causal"), optional(integer("scratch")),
                 optional(integer("sums")), optional(integer("fresh"))},
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
