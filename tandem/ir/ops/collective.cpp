// Collectives over the `size` ranks of a mesh `axis`, and copies between memories. Parts are equal cuts of
// the first dim, one a rank. Given `dst`, the result is written there. {untrained: 1}: no parameter that is
// trained leads to what is sent, and no gradient comes back.
#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

// A destination says where the result is, and in which type.
TensorType placed(const Operands& in, const TensorType& result) {
  if (in.size() < 2) return result;
  in.require(in.shape(1) == result.shape, "destination {} is not {}", in.show(1), to_string(result.shape));
  return in[1];
}

Types all_gather_types(const Operands& in) {
  std::vector<int64_t> dims = in.shape(0).dims();
  dims[0] *= in.attr("size");
  return {placed(in, {in[0].dtype, Shape(dims)})};
}

Types reduce_scatter_types(const Operands& in) {
  std::vector<int64_t> dims = in.shape(0).dims();
  in.require(dims[0] % in.attr("size") == 0, "{} ranks do not divide the first dim of {}", in.attr("size"),
             in.show(0));
  dims[0] /= in.attr("size");
  return {placed(in, {in.has("dtype") ? in.dtype_attr() : in[0].dtype, Shape(dims)})};
}

Types copy_types(const Operands& in) {
  if (in.size() > 1) in.same(0, 1);
  return {in[0]};
}

// Bytes sent, as communicator.h counts them.
int64_t other_ranks(const Node& node) { return node.attrs.integer("size") - 1; }

// One of `size` equal parts, the last one padded.
int64_t part_bytes(const Node& node, const TensorType& x) {
  const int64_t size = node.attrs.integer("size");
  return (x.shape.elems() + size - 1) / size * dtype_bytes(x.dtype);
}

int64_t all_gather_sent(const Node& node, std::span<const TensorType> in) {
  return other_ranks(node) * in[0].bytes();
}
int64_t reduce_scatter_sent(const Node& node, std::span<const TensorType> in) {
  return other_ranks(node) * part_bytes(node, in[0]);
}
int64_t all_reduce_sent(const Node& node, std::span<const TensorType> in) {
  return 2 * other_ranks(node) * part_bytes(node, in[0]);
}
int64_t send_sent(const Node&, std::span<const TensorType> in) { return in[0].bytes(); }

void all_gather_grad(Context& c, int32_t id) {
  Attrs attrs = c.node(id).attrs;
  const DType dtype = c.graph().type(c.input(id)).dtype;
  attrs.set("accumulate", int64_t{0});
  if (c.graph().type(c.dy(id)).dtype != dtype) attrs.set("dtype", std::string(dtype_name(dtype)));
  c.add(c.input(id), c.emit(Op::ReduceScatter, {c.dy(id)}, attrs));
}

void reduce_scatter_grad(Context& c, int32_t id) {
  const Attrs& attrs = c.node(id).attrs;
  c.add(c.input(id),
        c.emit(Op::AllGather, {c.dy(id)}, {{"axis", attrs.text("axis")}, {"size", attrs.integer("size")}}));
}

// What was received came from the chunk before, which waits for its gradient.
void recv_grad(Context& c, int32_t id) {
  const Attrs& attrs = c.node(id).attrs;
  c.emit(Op::Send, {c.dy(id)}, {{"axis", attrs.text("axis")}, {"peer", attrs.integer("peer")}});
}

OpInfo collective(Op op, std::string_view name, std::string_view meaning, StatedList<InputInfo> inputs,
                  StatedList<OutputInfo> outputs, StatedList<AttrInfo> attrs, InferRule infer, CountRule sent,
                  Remake remake, GradientRule gradient) {
  return {.op = op,
          .name = name,
          .meaning = meaning,
          .kind = OpKind::Collective,
          .inputs = std::move(inputs),
          .outputs = std::move(outputs),
          .attrs = std::move(attrs),
          .infer = infer,
          .cost = communicates(sent),
          .remake = remake,
          .split = Split::Never,
          .gradient = gradient};
}

}  // namespace

std::vector<OpInfo> collective_ops() {
  return {
      // Made again where recompute is selective: keeping the result would keep all ranks' rows on every rank.
      collective(Op::AllGather, "all_gather", "y: all ranks' x; x may be this rank's part of dst",
                 {"x", optional("dst")}, {OutputInfo("y").into("dst")}, {text("axis"), integer("size")},
                 all_gather_types, all_gather_sent, Remake::Cheap, all_gather_grad),
      collective(
          Op::ReduceScatter, "reduce_scatter",
          "y: this rank's part of the sum of all ranks' x, rounded to {dtype} if that is there; dst may "
          "be this rank's part of x; {accumulate: 1}: dst + that sum, 2: dst + each rank's x in turn",
          {"x", optional("dst")}, {OutputInfo("y").into("dst")},
          {text("axis"), integer("size"), integer("accumulate"), optional(text("dtype"))},
          reduce_scatter_types, reduce_scatter_sent, Remake::WithBlock, reduce_scatter_grad),
      collective(Op::AllReduce, "all_reduce", "the sum of all ranks' x", {"x"}, {in_place("x")},
                 {text("axis"), integer("size")}, like<0>, all_reduce_sent, Remake::WithBlock, kNoGradient),
      collective(Op::Send, "send", "x, unchanged; peer: place on the axis", {"x"}, {in_place("x")},
                 {text("axis"), integer("peer"), optional(integer("untrained"))}, like<0>, send_sent,
                 Remake::Never, kNoGradient),
      collective(
          Op::Recv, "recv", "y: what the peer sends", kNone, {"y"},
          {text("axis"), integer("peer"), text("dtype"), text("shape"), optional(integer("untrained"))},
          [](const Operands& in) {
            return Types{{in.dtype_attr(), in.shape_attr()}};
          },
          nothing, Remake::Never, recv_grad),
      {.op = Op::Copy,
       .name = "copy",
       .meaning = "y = x in another memory, {to: \"host\"} or {to: \"device\"}",
       .kind = OpKind::Kernel,
       .inputs = {"x", optional("dst")},
       .outputs = {OutputInfo("y").into("dst")},
       .attrs = {text("to")},
       .infer = copy_types,
       .cost = kMovesItsBytes,
       .remake = Remake::WithBlock,
       .split = Split::Never,
       .gradient = kNoGradient},
  };
}

}  // namespace tandem::ops
