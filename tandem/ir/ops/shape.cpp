// Ops that move elements, change their type, or look at them in another shape.
#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

Types concat_types(const Operands& in) {
  int64_t last = 0;
  for (const TensorType& type : in.all()) {
    in.require(type.shape.rows() == in.shape(0).rows() && type.dtype == in[0].dtype,
               "operands {} and {} differ", in.show(0), to_string(type.shape));
    last += type.shape.last();
  }
  return {in.with_last(0, last)};
}

Types slice_types(const Operands& in) {
  const int64_t begin = in.attr("begin"), size = in.attr("size");
  in.require(begin >= 0 && begin + size <= in.shape(0).last(), "[{}, +{}) is outside the last dim of {}",
             begin, size, in.show(0));
  return {in.with_last(0, size)};
}

Types reshape_types(const Operands& in) {
  const Shape target = in.shape_attr();
  in.require(target.elems() == in.shape(0).elems(), "{} does not hold as many elements as {}",
             to_string(target), in.show(0));
  return {{in[0].dtype, target}};
}

Types view_types(const Operands& in) {
  const TensorType part{in[0].dtype, in.shape_attr()};
  const int64_t begin = in.attr("begin");
  in.require(in.shape(0).rank() == 1, "expected a flat buffer, found {}", in.show(0));
  in.require(begin >= 0 && begin + part.shape.elems() <= in.shape(0).elems(), "[{}, +{}) is outside {}",
             begin, part.shape.elems(), in.show(0));
  return {part};
}

void concat_grad(Context& c, int32_t id) {
  int64_t begin = 0;
  for (Value input : std::vector<Value>(c.node(id).inputs)) {
    const int64_t size = c.graph().type(input).shape.last();
    if (c.wants(input)) c.add(input, c.emit(Op::Slice, {c.dy(id)}, {{"begin", begin}, {"size", size}}));
    begin += size;
  }
}

void reshape_grad(Context& c, int32_t id) {
  const Shape shape = c.graph().type(c.input(id)).shape;
  c.add(c.input(id), c.emit(Op::Reshape, {c.dy(id)}, {{"shape", shape_attr(shape)}}));
}

void cast_grad(Context& c, int32_t id) {
  const DType dtype = c.graph().type(c.input(id)).dtype;
  c.add(c.input(id), c.emit(Op::Cast, {c.dy(id)}, {{"dtype", std::string(dtype_name(dtype))}}));
}

}  // namespace

std::vector<OpInfo> shape_ops() {
  return {
      {.op = Op::Concat,
       .name = "concat",
       .meaning = "y: the parts side by side, along the last dim",
       .kind = OpKind::Kernel,
       .inputs = {"a", each("b")},
       .outputs = {"y"},
       .attrs = kNone,
       .infer = concat_types,
       .cost = kMovesItsBytes,
       .remake = Remake::WithBlock,
       .split = Split::Concat,
       .gradient = concat_grad},
      {.op = Op::Slice,
       .name = "slice",
       .meaning = "y: `size` columns from `begin` on, of the last dim",
       .kind = OpKind::Kernel,
       .inputs = {"x"},
       .outputs = {"y"},
       .attrs = {integer("begin"), integer("size")},
       .infer = slice_types,
       .cost = kMovesItsBytes,
       .remake = Remake::WithBlock,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::Reshape,
       .name = "reshape",
       .meaning = "a view of x in {shape: \"2,3\"}",
       .kind = OpKind::View,
       .inputs = {"x"},
       .outputs = {OutputInfo("y").into("x")},
       .attrs = {text("shape")},
       .infer = reshape_types,
       .cost = kCostsNothing,
       .remake = Remake::Cheap,
       .split = Split::Reshape,
       .gradient = reshape_grad},
      {.op = Op::View,
       .name = "view",
       .meaning = "a view of some elements of a flat buffer x[n]",
       .kind = OpKind::View,
       .inputs = {"x"},
       .outputs = {OutputInfo("y").into("x")},
       .attrs = {integer("begin"), text("shape")},
       .infer = view_types,
       .cost = kCostsNothing,
       .remake = Remake::WithBlock,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::Join,
       .name = "join",
       .meaning = "the flat buffer x[n] once its views, the parts, have been written",
       .kind = OpKind::View,
       .inputs = {"x", each("part")},
       .outputs = {in_place("x")},
       .attrs = kNone,
       .infer = like<0>,
       .cost = kCostsNothing,
       .remake = Remake::WithBlock,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::Zeros,
       .name = "zeros",
       .meaning = "y = 0, in dst where that is given; with {unset: 1} what it holds does not matter",
       .kind = OpKind::Kernel,
       .inputs = {optional("dst")},
       .outputs = {OutputInfo("y").into("dst")},
       .attrs = {text("dtype"), text("shape"), optional(integer("unset"))},
       .infer =
           [](const Operands& in) {
             return Types{{in.dtype_attr(), in.shape_attr()}};
           },
       .cost = kMovesItsBytes,
       .remake = Remake::WithBlock,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::Cast,
       .name = "cast",
       .meaning = "y = x in {dtype}",
       .kind = OpKind::Kernel,
       .inputs = {"x"},
       .outputs = {"y"},
       .attrs = {text("dtype")},
       .infer =
           [](const Operands& in) {
             return Types{{in.dtype_attr(), in.shape(0)}};
           },
       .cost = kMovesItsBytes,
       .remake = Remake::WithBlock,
       .split = Split::Pointwise,
       .gradient = cast_grad},
  };
}

}  // namespace tandem::ops
