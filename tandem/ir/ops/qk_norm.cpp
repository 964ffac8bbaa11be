// RMS norms of the queries and keys in packed qkv[B, T, (heads + 2 kv_heads) * head_dim], of each head or,
// with {all: 1}, of all query heads of a token together and of all its key heads together. Values stay.
#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

Types qk_norm_types(const Operands& in) {
  const int64_t heads = in.attr("heads"), kv_heads = in.attr("kv_heads");
  const Shape& qkv = in.shape(0);
  in.require(qkv.last() % (heads + 2 * kv_heads) == 0, "{} heads and {} kv heads do not divide {}", heads,
             kv_heads, qkv.last());
  const int64_t head_dim = qkv.last() / (heads + 2 * kv_heads);
  const bool all = in.is_set("all");
  const int64_t queries = all ? heads * head_dim : head_dim, keys = all ? kv_heads * head_dim : head_dim;
  in.require(in.shape(1) == Shape({queries}), "expected gamma_q [{}], found {}", queries, in.show(1));
  in.require(in.shape(2) == Shape({keys}), "expected gamma_k [{}], found {}", keys, in.show(2));
  return {in[0], {stats_dtype(in[0].dtype), Shape({qkv.rows(), all ? 2 : heads + kv_heads})}};
}

void qk_norm_grad(Context& c, int32_t id) {
  const std::vector<Value> in = c.node(id).inputs;
  const Value dx = c.emit(
      Op::QkNormGrad, {c.dy(id), in[0], in[1], in[2], {id, 1}, c.accumulator(in[1]), c.accumulator(in[2])},
      c.node(id).attrs);
  c.set_accumulator(in[1], {dx.node, 1});
  c.set_accumulator(in[2], {dx.node, 2});
  c.add(in[0], dx);
}

StatedList<AttrInfo> attrs_and(std::initializer_list<AttrInfo> more) {
  std::vector<AttrInfo> attrs = {integer("heads"), integer("kv_heads"), real("eps"), optional(integer("all")),
                                 optional(integer("plus_one"))};
  attrs.insert(attrs.end(), more);
  return StatedList<AttrInfo>(std::move(attrs));
}

}  // namespace

std::vector<OpInfo> qk_norm_ops() {
  return {
      {.op = Op::QkNorm,
       .name = "qk_norm",
       .meaning =
           "y: each query and key head h of a token is h rstd gamma, rstd = 1 / sqrt(mean(h^2) + eps), "
           "with {plus_one: 1} h rstd (1 + gamma); rstd[N, heads + kv_heads]; with {all: 1} h is all "
           "query heads together, then all key heads, rstd[N, 2]; values are copied",
       .kind = OpKind::Kernel,
       .inputs = {"qkv", "gamma_q", "gamma_k"},
       .outputs = {OutputInfo("y").over("qkv"), "rstd"},
       .attrs = attrs_and({}),
       .infer = qk_norm_types,
       .cost = kMovesItsBytes,
       .remake = Remake::WithBlock,
       .split = Split::Heads,
       .gradient = qk_norm_grad},
      {.op = Op::QkNormGrad,
       .name = "qk_norm_grad",
       .meaning = "dqkv, values' gradient as it is in dy; acc_... += gradients of the gammas, over all heads",
       .kind = OpKind::Kernel,
       .inputs = {"dy", "qkv", "gamma_q", "gamma_k", "rstd", "acc_dq", "acc_dk"},
       .outputs = {OutputInfo("dqkv").over("dy"), in_place("acc_dq"), in_place("acc_dk")},
       .attrs = attrs_and({optional(integer("fresh"))}),
       .infer =
           [](const Operands& in) {
             return Types{in[0], in[5], in[6]};
           },
       .cost = kMovesItsBytes,
       .remake = Remake::Never,
       .split = Split::Never,
       .gradient = kNoGradient},
  };
}

}  // namespace tandem::ops
