// Ops that make each element of their outputs from the same element, or pair of elements, of their inputs.
#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

Types like_both(const Operands& in) {
  if (in.size() > 2) in.same(0, 2);
  return {in.same(0, 1)};
}

void add_grad(Context& c, int32_t id) {
  c.add(c.input(id, 0), c.dy(id));
  c.add(c.input(id, 1), c.dy(id));
}

void scale_grad(Context& c, int32_t id) {
  c.add(c.input(id), c.emit(Op::Scale, {c.dy(id)}, c.node(id).attrs));
}

// kGradient takes dy and x.
template <Op kGradient>
void grad_from_input(Context& c, int32_t id) {
  c.add(c.input(id), c.emit(kGradient, {c.dy(id), c.input(id)}, c.node(id).attrs));
}

// kGradient takes dy and y.
template <Op kGradient>
void grad_from_output(Context& c, int32_t id) {
  c.add(c.input(id), c.emit(kGradient, {c.dy(id), {id, 0}}, c.node(id).attrs));
}

Types dropout_types(const Operands& in) {
  in.require(in[1] == TensorType{DType::I32, Shape({2})},
             "expected the first sample's number i32[2], found {}{}", dtype_name(in[1].dtype), in.show(1));
  return {in[0]};
}

// The same elements are dropped, and the others scaled alike.
void dropout_grad(Context& c, int32_t id) {
  c.add(c.input(id), c.emit(Op::Dropout, {c.dy(id), c.input(id, 1)}, c.node(id).attrs));
}

// One or two operands of one type, and a result of that type that may take over the first one's bytes.
OpInfo elementwise(Op op, std::string_view name, std::string_view meaning, StatedList<InputInfo> inputs,
                   StatedList<AttrInfo> attrs, Remake remake, Split split, GradientRule gradient) {
  const std::string_view first = (*inputs)[0].name;
  const InferRule infer = (*inputs).size() == 1 ? like<0> : like_both;
  return {.op = op,
          .name = name,
          .meaning = meaning,
          .kind = OpKind::Kernel,
          .inputs = std::move(inputs),
          .outputs = {OutputInfo(first == "dy" ? "dx" : "y").over(first)},
          .attrs = std::move(attrs),
          .infer = infer,
          .cost = kMovesItsBytes,
          .remake = remake,
          .split = split,
          .gradient = gradient};
}

OpInfo forward(Op op, std::string_view name, std::string_view meaning, StatedList<InputInfo> inputs,
               StatedList<AttrInfo> attrs, Remake remake, GradientRule gradient) {
  return elementwise(op, name, meaning, std::move(inputs), std::move(attrs), remake, Split::Pointwise,
                     gradient);
}

OpInfo backward(Op op, std::string_view name, std::string_view meaning, StatedList<InputInfo> inputs,
                StatedList<AttrInfo> attrs) {
  return elementwise(op, name, meaning, std::move(inputs), std::move(attrs), Remake::Never, Split::Never,
                     kNoGradient);
}

template <Op kGradient>
OpInfo gated(Op op, std::string_view name, std::string_view meaning) {
  return {.op = op,
          .name = name,
          .meaning = meaning,
          .kind = OpKind::Kernel,
          .inputs = {"gate_up"},
          .outputs = {"y"},
          .attrs = kNone,
          .infer = [](const Operands& in) { return Types{in.half(0)}; },
          .cost = kMovesItsBytes,
          .remake = Remake::Cheap,
          .split = Split::GateUp,
          .gradient = grad_from_input<kGradient>};
}

OpInfo gated_grad(Op op, std::string_view name, std::string_view meaning) {
  return {.op = op,
          .name = name,
          .meaning = meaning,
          .kind = OpKind::Kernel,
          .inputs = {"dy", "gate_up"},
          .outputs = {OutputInfo("dgate_up").over("gate_up"), out_when("again", OutputInfo("y").over("dy"))},
          .attrs = {optional(integer("again"))},
          .infer =
              [](const Operands& in) {
                return in.is_set("again") ? Types{in[1], in[0]} : Types{in[1]};
              },
          .cost = kMovesItsBytes,
          .remake = Remake::Never,
          .split = Split::Never,
          .gradient = kNoGradient};
}

}  // namespace

std::vector<OpInfo> pointwise_ops() {
  OpInfo add = forward(Op::Add, "add", "y = a + b; given dst, which may be a or b, y is written there",
                       {"a", "b", optional("dst")}, kNone, Remake::WithBlock, add_grad);
  add.outputs = {OutputInfo("y").over("a").into("dst")};
  return {
      add,
      forward(Op::Scale, "scale", "y = factor x", {"x"}, {real("factor")}, Remake::WithBlock, scale_grad),
      forward(Op::Gelu, "gelu", "y = gelu(x), tanh form", {"x"}, kNone, Remake::Cheap,
              grad_from_input<Op::GeluGrad>),
      backward(Op::GeluGrad, "gelu_grad", "dx = dy gelu'(x)", {"dy", "x"}, kNone),
      // Not cheap to make again: its gradient reads y, so x need not be kept.
      forward(Op::Relu, "relu", "y = max(x, 0)", {"x"}, kNone, Remake::WithBlock,
              grad_from_output<Op::ReluGrad>),
      backward(Op::ReluGrad, "relu_grad", "dx = dy where y > 0, else 0", {"dy", "y"}, kNone),
      forward(Op::Softcap, "softcap", "y = cap tanh(x / cap)", {"x"}, {real("cap")}, Remake::Cheap,
              grad_from_input<Op::SoftcapGrad>),
      backward(Op::SoftcapGrad, "softcap_grad", "dx = dy (1 - tanh(x / cap)^2)", {"dy", "x"}, {real("cap")}),
      {.op = Op::Dropout,
       .name = "dropout",
       .meaning = "y = x / (1 - rate), or 0 for about `rate` of the elements (runtime/dropout_mask.h): by "
                  "seed, site, "
                  "sample, of `rows` rows each, and element; the first row here is number `first`",
       .kind = OpKind::Kernel,
       .inputs = {"x", "sample"},
       .outputs = {OutputInfo("y").over("x")},
       .attrs = {real("rate"), integer("site"), integer("rows"), optional(integer("first")),
                 optional(integer("seed"))},
       .infer = dropout_types,
       .cost = kMovesItsBytes,
       .remake = Remake::WithBlock,
       .split = Split::Sampled,
       .gradient = dropout_grad},
      gated<Op::SwigluGrad>(Op::Swiglu, "swiglu", "y[N,F] = silu(gate) * up of gate_up[N,2F], gate first"),
      gated_grad(Op::SwigluGrad, "swiglu_grad", "dgate_up; with {again: 1} also y of swiglu, bit for bit"),
      gated<Op::GegluGrad>(Op::Geglu, "geglu",
                           "y[N,F] = gelu(gate) * up of gate_up[N,2F], gate first; gelu in its tanh form"),
      gated_grad(Op::GegluGrad, "geglu_grad", "dgate_up; with {again: 1} also y of geglu, bit for bit"),
  };
}

}  // namespace tandem::ops
