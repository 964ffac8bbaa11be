// Causal attention of a few new tokens over all that came before them, whose keys and values are kept: the op
// of generation, made of `attention` by compile/passes/cache.h.
//
// The cache holds position p in its slot p % slots. It may have fewer slots than there are positions where a
// window says that nobody looks further back: what T new rows overwrite must be out of every window.
#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

Types cached_attention_types(const Operands& in) {
  const Shape& qkv = in.shape(0);
  const int64_t heads = in.attr("heads"), kv_heads = in.attr("kv_heads");
  in.require(qkv.rank() == 3 && kv_heads > 0 && heads % kv_heads == 0 && qkv[2] % (heads + 2 * kv_heads) == 0,
             "expected packed qkv [B,T,(heads+2*kv_heads)*head_dim] of {} heads and {} kv heads, found {}",
             heads, kv_heads, in.show(0));
  const int64_t head_dim = qkv[2] / (heads + 2 * kv_heads);
  const Shape& keys = in.shape(1);
  in.require(keys.rank() == 4 && keys == Shape({qkv[0], kv_heads, keys[2], head_dim}) && keys[2] >= qkv[1],
             "expected a cache [{},{},slots,{}] of at least {} slots, found {}", qkv[0], kv_heads, head_dim,
             qkv[1], in.show(1));
  in.require(in[1].dtype == in[0].dtype && in[2] == in[1], "keys {} and values {} do not match qkv {}",
             in.show(1), in.show(2), in.show(0));
  in.require(in.attr_or("window", 1) > 0, "expected a window of at least 1, found {}",
             in.attr_or("window", 1));
  check_position(in, 3);
  return {in.with_last(0, heads * head_dim), in[1], in[2]};
}

// Of a cache that is full.
int64_t most_flops(const Node& node, std::span<const TensorType> in) {
  const int64_t seen = std::min(in[1].shape[2], node.attrs.integer_or("window", in[1].shape[2]));
  return 4 * node.outputs[0].shape.elems() * seen;
}

}  // namespace

std::vector<OpInfo> cached_attention_ops() {
  return {
      {.op = Op::CachedAttention,
       .name = "cached_attention",
       .meaning =
           "out[B,T,heads*head_dim]: row t is at position[0] + t and sees itself and what is before it, "
           "within {window} if there is one; the keys and values of the first position[1] rows are put into "
           "the cache; the others come out as zeros; scores as attention has them",
       .kind = OpKind::Kernel,
       .inputs = {"qkv", "keys", "values", "position"},
       .outputs = {"out", in_place("keys"), in_place("values")},
       .attrs = {integer("heads"), integer("kv_heads"), optional(integer("window")),
                 optional(real("softcap")), optional(real("scale"))},
       .infer = cached_attention_types,
       .cost = multiplies(most_flops),
       .remake = Remake::Never,
       .split = Split::Never,
       .gradient = kNoGradient},
  };
}

}  // namespace tandem::ops
