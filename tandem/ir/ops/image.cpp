// Convolutions and pooling of images x[B,H,W,C].
#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

// What a window of size x size that moves over input 0 gives.
TensorType window(const Operands& in, int64_t size, int64_t channels) {
  const Shape& x = in.image(0).shape;
  const auto extent = [&](int64_t length) {
    return (length + 2 * in.attr("pad") - size) / in.attr("stride") + 1;
  };
  in.require(extent(x[1]) > 0 && extent(x[2]) > 0, "a {0}x{0} window does not fit into {1}", size,
             in.show(0));
  return {in[0].dtype, Shape({x[0], extent(x[1]), extent(x[2]), channels})};
}

Types conv2d_types(const Operands& in) {
  const Shape& w = in.shape(1);
  in.require(w.rank() == 4 && w[1] == w[2], "expected a weight [out,k,k,in], found {}", in.show(1));
  in.require(w[3] == in.shape(0).last(), "weight {} does not match input {}", in.show(1), in.show(0));
  return {window(in, w[1], w[0])};
}

Types max_pool_types(const Operands& in) {
  const TensorType pooled = window(in, in.attr("size"), in.shape(0).last());
  return {pooled, {DType::I32, pooled.shape}};
}

// An image of the size that the attributes give.
Types image_types(const Operands& in, int64_t channels) {
  return {{in[0].dtype, Shape({in.shape(0)[0], in.attr("height"), in.attr("width"), channels})}};
}

// Each element of y, or of dy, meets k * k * in elements of the weight.
int64_t conv_flops(const Shape& y, const Shape& weight) {
  return 2 * y.elems() * (weight.elems() / weight[0]);
}

void conv2d_grad(Context& c, int32_t id) {
  const std::vector<Value> in = c.node(id).inputs;
  Attrs attrs = c.node(id).attrs;
  const Value dy = c.dy(id);
  if (in.size() > 2 && !c.is_frozen(in[2]))
    c.set_accumulator(in[2], c.emit(Op::BiasGrad, {c.accumulator(in[2]), dy}));
  if (!c.is_frozen(in[1]))
    c.set_accumulator(in[1], c.emit(Op::Conv2dGradWeight, {c.accumulator(in[1]), in[0], dy}, attrs));
  if (!c.wants(in[0])) return;
  const Shape x = c.graph().type(in[0]).shape;
  attrs.set("height", x[1]);
  attrs.set("width", x[2]);
  c.add(in[0], c.emit(Op::Conv2dGradInput, {dy, in[1]}, attrs));
}

// The attributes of the pooling, where it has any, say which windows a pixel was in.
void pool_grad(Context& c, int32_t id, Op op, std::vector<Value> inputs) {
  const Value x = c.input(id);
  const Shape shape = c.graph().type(x).shape;
  Attrs attrs = c.node(id).attrs;
  attrs.set("height", shape[1]);
  attrs.set("width", shape[2]);
  c.add(x, c.emit(op, std::move(inputs), std::move(attrs)));
}

}  // namespace

std::vector<OpInfo> image_ops() {
  return {
      {.op = Op::Conv2d,
       .name = "conv2d",
       .meaning = "y[B,H',W',out] of x and w[out,k,k,in], plus bias[out]",
       .kind = OpKind::Kernel,
       .inputs = {"x", "w", optional("bias")},
       .outputs = {"y"},
       .attrs = {integer("stride"), integer("pad")},
       .infer = conv2d_types,
       .cost = multiplies([](const Node& node, std::span<const TensorType> in) {
         return conv_flops(node.outputs[0].shape, in[1].shape);
       }),
       .remake = Remake::WithBlock,
       .split = Split::Never,
       .gradient = conv2d_grad},
      {.op = Op::Conv2dGradInput,
       .name = "conv2d_grad_input",
       .meaning = "dx[B,height,width,in]",
       .kind = OpKind::Kernel,
       .inputs = {"dy", "w"},
       .outputs = {"dx"},
       .attrs = {integer("stride"), integer("pad"), integer("height"), integer("width")},
       .infer = [](const Operands& in) { return image_types(in, in.shape(1)[3]); },
       .cost = multiplies(
           [](const Node&, std::span<const TensorType> in) { return conv_flops(in[0].shape, in[1].shape); }),
       .remake = Remake::Never,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::Conv2dGradWeight,
       .name = "conv2d_grad_weight",
       .meaning = "acc += gradient of w",
       .kind = OpKind::Kernel,
       .inputs = {"acc", "x", "dy"},
       .outputs = {in_place("acc")},
       .attrs = {integer("stride"), integer("pad"), optional(integer("fresh"))},
       .infer = like<0>,
       .cost = multiplies(
           [](const Node&, std::span<const TensorType> in) { return conv_flops(in[2].shape, in[0].shape); }),
       .remake = Remake::Never,
       .split = Split::Never,
       .gradient = kNoGradient},
      unsplit(Op::MaxPool2d, "max_pool2d", "y; argmax i32, the index inside the image", {"x"},
              {"y", "argmax"}, {integer("size"), integer("stride"), integer("pad")}, max_pool_types,
              Remake::WithBlock,
              [](Context& c, int32_t id) {
                pool_grad(c, id, Op::MaxPool2dGrad, {c.dy(id), {id, 1}});
              }),
      unsplit(
          Op::MaxPool2dGrad, "max_pool2d_grad", "dx[B,height,width,C]", {"dy", "argmax"}, {"dx"},
          {integer("height"), integer("width"), optional(integer("size")), optional(integer("stride")),
           optional(integer("pad"))},
          [](const Operands& in) { return image_types(in, in.shape(0)[3]); }, Remake::Never, kNoGradient),
      unsplit(
          Op::GlobalAvgPool, "global_avg_pool", "y[B,C]: the mean of each channel", {"x"}, {"y"}, kNone,
          [](const Operands& in) {
            const Shape& x = in.image(0).shape;
            return Types{{in[0].dtype, Shape({x[0], x[3]})}};
          },
          Remake::WithBlock,
          [](Context& c, int32_t id) { pool_grad(c, id, Op::GlobalAvgPoolGrad, {c.dy(id)}); }),
      unsplit(
          Op::GlobalAvgPoolGrad, "global_avg_pool_grad", "dx[B,height,width,C]", {"dy"}, {"dx"},
          {integer("height"), integer("width")},
          [](const Operands& in) { return image_types(in, in.shape(0)[1]); }, Remake::Never, kNoGradient),
  };
}

}  // namespace tandem::ops
