// Matrix products. With {wide: 1} y is f32 whatever S is: a partial sum, to be rounded once ranks have added
// theirs up. {wide_grad: 1} says so of the gradient of a, where every rank has columns of y. {few: 1} says
// that a has few rows and that b is read at the speed of memory: kernels for that add in an order of their
// own.
#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

TensorType matmul_type(const Operands& in) {
  const auto [m, n] = in.product(0, 1);
  if (in.size() > 2)
    in.require(in.shape(2) == Shape({n}), "bias {} does not match {} columns", in.show(2), n);
  TensorType type = in.attr("trans_a") != 0 ? TensorType{in[0].dtype, Shape({m, n})} : in.with_last(0, n);
  if (in.is_set("wide")) type.dtype = stats_dtype(type.dtype);
  return type;
}

Types matmul_acc_types(const Operands& in) {
  const auto [m, n] = in.product(1, 2);
  in.require(in.shape(0) == Shape({m, n}), "accumulator {} does not match the product [{},{}]", in.show(0), m,
             n);
  return {in[0]};
}

Types matmul_bias_acc_types(const Operands& in) {
  const auto [m, n] = in.product(2, 3);
  in.require(in.shape(0) == Shape({m, n}) && in.shape(1) == Shape({m}),
             "accumulators {} and {} do not match the product [{},{}]", in.show(0), in.show(1), m, n);
  return {in[0], in[1]};
}

Types matmul_gelu_grad_types(const Operands& in) {
  const auto [m, n] = in.product(0, 1);
  in.require(in.shape(2).rows() == m && in.shape(2).last() == n, "the product [{},{}] does not match {}", m,
             n, in.show(2));
  return {in[2]};
}

// Of a product whose left operand is input kA.
template <size_t kA>
int64_t matmul_flops(const Node& node, std::span<const TensorType> in) {
  return product_flops(in[kA], node.outputs[0], node.attrs.integer("trans_a") != 0);
}

// The weight gradient comes before the input gradient: it is the last reader of the saved activation, whose
// memory the input gradient can then take.
void matmul_grad(Context& c, int32_t id) {
  const std::vector<Value> in = c.node(id).inputs;
  const bool trans_a = c.node(id).attrs.integer("trans_a") != 0;
  const bool trans_b = c.node(id).attrs.integer("trans_b") != 0;
  TANDEM_CHECK(!trans_a, "matmul: no model differentiates a transposed left operand");
  const Value dy = c.dy(id), a = in[0], b = in[1];
  const auto flags = [](int64_t ta, int64_t tb) { return Attrs{{"trans_a", ta}, {"trans_b", tb}}; };
  if (in.size() > 2 && !c.is_frozen(in[2]))
    c.set_accumulator(in[2], c.emit(Op::BiasGrad, {c.accumulator(in[2]), dy}));
  const Value left = trans_b ? dy : a, right = trans_b ? a : dy;  // db = dy^T a, or a^T dy
  if (c.is_param(b) && !c.is_frozen(b)) {
    c.set_accumulator(b, c.emit(Op::MatmulAcc, {c.accumulator(b), left, right}, flags(1, 0)));
  } else if (c.wants(b)) {
    c.add(b, c.emit(Op::Matmul, {left, right}, flags(1, 0)));
  }
  if (!c.wants(a)) return;
  Attrs attrs = flags(0, trans_b ? 0 : 1);
  if (c.node(id).attrs.integer_or("wide_grad", 0) != 0) attrs.set("wide", int64_t{1});
  c.add(a, c.emit(Op::Matmul, {dy, b}, attrs));
}

}  // namespace

std::vector<OpInfo> linear_ops() {
  return {
      {.op = Op::Matmul,
       .name = "matmul",
       .meaning = "y = op(a) op(b) + bias[out]",
       .kind = OpKind::Kernel,
       .inputs = {"a", "b", optional("bias")},
       .outputs = {"y"},
       .attrs = {integer("trans_a"), integer("trans_b"), optional(integer("wide")),
                 optional(integer("wide_grad")), optional(integer("few"))},
       .infer = [](const Operands& in) { return Types{matmul_type(in)}; },
       .cost = multiplies(matmul_flops<0>),
       .remake = Remake::WithBlock,
       .split = Split::Linear,
       .gradient = matmul_grad},
      {.op = Op::MatmulGelu,
       .name = "matmul_gelu",
       .meaning = "pre = op(a) op(b) + bias; act = gelu(pre)",
       .kind = OpKind::Kernel,
       .inputs = {"a", "b", "bias"},
       .outputs = {"act", "pre"},
       .attrs = {integer("trans_a"), integer("trans_b"), optional(integer("wide_grad")),
                 optional(integer("few"))},
       .infer =
           [](const Operands& in) {
             return Types{matmul_type(in), matmul_type(in)};
           },
       .cost = multiplies(matmul_flops<0>),
       .remake = Remake::WithBlock,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::MatmulAcc,
       .name = "matmul_acc",
       .meaning = "acc += op(a) op(b)",
       .kind = OpKind::Kernel,
       .inputs = {"acc", "a", "b"},
       .outputs = {in_place("acc")},
       .attrs = {integer("trans_a"), integer("trans_b"), optional(integer("fresh"))},
       .infer = matmul_acc_types,
       .cost = multiplies(matmul_flops<1>),
       .remake = Remake::Never,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::MatmulBiasAcc,
       .name = "matmul_bias_acc",
       .meaning = "acc += a[N,out]^T b; acc_bias[out] += column sums of a",
       .kind = OpKind::Kernel,
       .inputs = {"acc", "acc_bias", "a", "b"},
       .outputs = {in_place("acc"), in_place("acc_bias")},
       .attrs = {integer("trans_a"), integer("trans_b"), optional(integer("fresh"))},
       .infer = matmul_bias_acc_types,
       .cost = multiplies(matmul_flops<2>),
       .remake = Remake::Never,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::MatmulGeluGrad,
       .name = "matmul_gelu_grad",
       .meaning = "dpre = (op(dy) op(b)) * gelu'(pre)",
       .kind = OpKind::Kernel,
       .inputs = {"dy", "b", "pre"},
       .outputs = {"dpre"},
       .attrs = {integer("trans_a"), integer("trans_b")},
       .infer = matmul_gelu_grad_types,
       .cost = multiplies(matmul_flops<0>),
       .remake = Remake::Never,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::BiasGrad,
       .name = "bias_grad",
       .meaning = "acc[out] += column sums of dy[N,out]",
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
