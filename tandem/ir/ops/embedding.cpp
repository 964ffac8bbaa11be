// Rows of a table by ids i32[B,T]. {first}, 0 by default: the table holds the ids from there on (a shard of
// the vocabulary), one a row, or {valid} of them, and padding behind; an id outside it reads zeros and gets
// no gradient. Each row's sum is made first, then added to the accumulator. {positions: 1}: where a token
// stands is its number there, below T, instead of its place in the sequence.
#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

Types embedding_types(const Operands& in) {
  std::vector<int64_t> dims = in.shape(0).dims();
  if (in.is_set("at")) {
    check_position(in, in.size() - 1);
    in.require(in.size() == 4 && in.shape(2).last() == in.shape(1).last(),
               "a position is for a table of positions as wide as {}", in.show(1));
  } else if (in.size() > 2) {
    in.require(in.shape(2) == Shape({dims.back(), in.shape(1).last()}),
               "positions {} do not match ids {} and table {}", in.show(2), in.show(0), in.show(1));
  }
  if (in.is_set("positions")) {
    in.require(in.size() == 4, "positions of tokens need pos, the table of positions");
    in.require(in[3] == in[0], "expected positions like ids {}, found {}{}", in.show(0),
               dtype_name(in[3].dtype), in.show(3));
  }
  dims.push_back(in.shape(1).last());
  return {{in[1].dtype, Shape(dims)}};
}

// Only the rows read.
int64_t embedding_bytes(const Node& node, std::span<const TensorType> in) {
  return in[0].bytes() + 2 * node.outputs[0].bytes();
}

void embedding_grad(Context& c, int32_t id) {
  const std::vector<Value> in = c.node(id).inputs;
  const Value dy = c.dy(id);
  Attrs attrs;
  for (const char* name : {"first", "valid"}) {
    if (c.node(id).attrs.has(name)) attrs.set(name, c.node(id).attrs.integer(name));
  }
  const Context::Part part = c.part_for_embedding(in[1]);
  if (!c.is_frozen(in[1]))
    c.set_accumulator(in[1], c.emit(Op::EmbeddingGrad, {c.accumulator(in[1], part), in[0], dy}, attrs), part);
  if (in.size() < 3 || c.is_frozen(in[2])) return;
  if (in.size() == 3) c.set_accumulator(in[2], c.emit(Op::PositionGrad, {c.accumulator(in[2]), dy}));
  if (in.size() == 4) c.set_accumulator(in[2], c.emit(Op::EmbeddingGrad, {c.accumulator(in[2]), in[3], dy}));
}

}  // namespace

std::vector<OpInfo> embedding_ops() {
  return {
      {.op = Op::Embedding,
       .name = "embedding",
       .meaning =
           "y[B,T,d]: rows of table[V,d], plus those of pos[T,d]: by place in the sequence, with {positions: "
           "1} by the token's number there, with {at: 1} from position[0] on, the last one again where there "
           "are no more",
       .kind = OpKind::Kernel,
       .inputs = {"ids", "table", optional("pos"), when("positions", "positions"), when("at", "position")},
       .outputs = {"y"},
       .attrs = {optional(integer("first")), optional(integer("valid")), optional(integer("positions")),
                 optional(integer("at"))},
       .infer = embedding_types,
       .cost = {.flops = nothing, .bytes = embedding_bytes, .sent = nothing},
       .remake = Remake::WithBlock,
       .split = Split::Embedding,
       .gradient = embedding_grad},
      {.op = Op::EmbeddingGrad,
       .name = "embedding_grad",
       .meaning = "acc[V,d] += rows of dy by id",
       .kind = OpKind::Kernel,
       .inputs = {"acc", "ids", "dy"},
       .outputs = {in_place("acc")},
       .attrs = {optional(integer("first")), optional(integer("valid")), optional(integer("fresh"))},
       .infer = like<0>,
       .cost = kMovesItsBytes,
       .remake = Remake::Never,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::PositionGrad,
       .name = "position_grad",
       .meaning = "acc[T,d] += sum over the batch of dy[B,T,d]",
       .kind = OpKind::Kernel,
       .inputs = {"acc", "dy"},
       .outputs = {in_place("acc")},
       .attrs = {optional(integer("fresh"))},
       .infer = like<0>,
       .cost = kMovesItsBytes,
       .remake = Remake::Never,
       .split = Split::Never,
       .gradient = kNoGradient},
  };
}

}  // namespace tandem::ops
