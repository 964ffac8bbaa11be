// Products of 8-bit floats (E: f8e4m3 or f8e5m2). `scale` is f32[n,4]: row `slot` holds a power of two, four
// times, as matrix units read it from aligned addresses. What is stored is x / scale, or the largest finite E
// where that is too large. A product's operands are both stored along the inner dimension, so a tensor is
// quantized as it is ({rows: 1}), transposed ({columns: 1}), or both, in that order. `need` gathers the
// largest |x| / (largest finite E) that was quantized with each slot.
// Where ranks hold parts of weights, each finds the largest |w| / 448 of its pieces, as ranges (0 where it
// has none), and scales are made of the largest of all ranks' ranges. What is quantized may be such a part,
// {pieces: "slot:begin:elems,.."} of it, or have been quantized with that scale before.
#include "tandem/ir/ops/entry.h"

namespace tandem::ops {
namespace {

// A tensor of the shape of x as it is, transposed, or both; then `need`, where that input is there.
Types quantized(const Operands& in, const Shape& x, size_t need) {
  const DType dtype = in.dtype_attr();
  in.require(is_fp8(dtype), "{} is not an 8-bit float", dtype_name(dtype));
  Types types;
  if (in.attr("rows") != 0) types.push_back({dtype, x});
  if (in.attr("columns") != 0) types.push_back({dtype, Shape({x.last(), x.rows()})});
  if (in.size() > need) types.push_back(in[need]);
  return types;
}

Types fp8_matmul_types(const Operands& in) {
  in.require(in.shape(0).last() == in.shape(1).last(), "inner sizes of {} and {} differ", in.show(0),
             in.show(1));
  return {{in.dtype_attr(), in.with_last(0, in.shape(1).rows()).shape}};
}

Types fp8_matmul_acc_types(const Operands& in) {
  const int64_t m = in.shape(1).rows(), n = in.shape(2).rows();
  in.require(in.shape(1).last() == in.shape(2).last() && in.shape(0) == Shape({m, n}),
             "accumulator {} does not match {} by {} transposed", in.show(0), in.show(1), in.show(2));
  return {in[0]};
}

// Of a product whose left operand is input kA.
template <size_t kA>
int64_t fp8_flops(const Node& node, std::span<const TensorType> in) {
  return product_flops(in[kA], node.outputs[0], false);
}

OpInfo quantizing(Op op, std::string_view name, std::string_view meaning, StatedList<InputInfo> inputs,
                  InferRule infer) {
  return {.op = op,
          .name = name,
          .meaning = meaning,
          .kind = OpKind::Kernel,
          .inputs = std::move(inputs),
          .outputs = {out_when("rows", "q"), out_when("columns", "qt"), in_place("need")},
          .attrs = {integer("slot"), text("dtype"), integer("rows"), integer("columns"),
                    optional(text("pieces"))},
          .infer = infer,
          .cost = kMovesItsBytes,
          .remake = Remake::WithBlock,
          .split = Split::Never,
          .gradient = kNoGradient};
}

}  // namespace

std::vector<OpInfo> fp8_ops() {
  return {
      {.op = Op::Fp8Scales,
       .name = "fp8_scales",
       .meaning = "scale[n,4]: the power of two at or above range f32[n], or the largest of f32[parts*n]; 0 "
                  "gives 2^unknown",
       .kind = OpKind::Kernel,
       .inputs = {"range"},
       .outputs = {"scale"},
       .attrs = {integer("unknown"), optional(integer("parts"))},
       .infer =
           [](const Operands& in) {
             return Types{{DType::F32, Shape({in.shape(0).elems() / in.attr_or("parts", 1), 4})}};
           },
       .cost = kMovesItsBytes,
       .remake = Remake::WithBlock,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::Fp8WeightScales,
       .name = "fp8_weight_scales",
       .meaning = "scale[n,4]: the power of two at or above the largest |w| / 448 of each; of pieces {slots: "
                  "\"0,2\"} what scales are made of, f32[num_slots]",
       .kind = OpKind::Kernel,
       .inputs = {each("w")},
       .outputs = {"scale"},
       .attrs = {optional(text("slots")), optional(integer("num_slots"))},
       .infer =
           [](const Operands& in) {
             if (const int64_t slots = in.attr_or("num_slots", 0); slots > 0)
               return Types{{DType::F32, Shape({slots})}};
             return Types{{DType::F32, Shape({static_cast<int64_t>(in.size()), 4})}};
           },
       .cost = kMovesItsBytes,
       .remake = Remake::WithBlock,
       .split = Split::Never,
       .gradient = kNoGradient},
      quantizing(Op::Fp8Quantize, "fp8_quantize", "q[N,K] = x / scale, qt[K,N] its transpose",
                 {"x", "scale", optional("need")},
                 [](const Operands& in) { return quantized(in, in.shape(0), 2); }),
      quantizing(Op::Fp8Swiglu, "fp8_swiglu", "fp8_quantize of swiglu", {"gate_up", "scale", "need"},
                 [](const Operands& in) { return quantized(in, in.half(0).shape, 2); }),
      quantizing(Op::Fp8SwigluGrad, "fp8_swiglu_grad", "fp8_quantize of swiglu_grad",
                 {"dy", "gate_up", "scale", "need"},
                 [](const Operands& in) { return quantized(in, in.shape(1), 3); }),
      {.op = Op::Fp8Matmul,
       .name = "fp8_matmul",
       .meaning = "y = a[N,K] b[out,K]^T + bias[out], in {dtype}",
       .kind = OpKind::Kernel,
       .inputs = {"a", "b", "scale_a", "scale_b", optional("bias")},
       .outputs = {"y"},
       .attrs = {integer("slot_a"), integer("slot_b"), text("dtype")},
       .infer = fp8_matmul_types,
       .cost = multiplies(fp8_flops<0>),
       .remake = Remake::WithBlock,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::Fp8MatmulAcc,
       .name = "fp8_matmul_acc",
       .meaning = "acc += a[M,K] b[N,K]^T",
       .kind = OpKind::Kernel,
       .inputs = {"acc", "a", "b", "scale_a", "scale_b"},
       .outputs = {in_place("acc")},
       .attrs = {integer("slot_a"), integer("slot_b"), optional(integer("fresh"))},
       .infer = fp8_matmul_acc_types,
       .cost = multiplies(fp8_flops<1>),
       .remake = Remake::Never,
       .split = Split::Never,
       .gradient = kNoGradient},
      {.op = Op::Fp8Ranges,
       .name = "fp8_ranges",
       .meaning = "range = max(need, 7/8 range), or of the needs[k*n] of k ranks; need = 0",
       .kind = OpKind::Kernel,
       .inputs = {"range", "need", optional("needs")},
       .outputs = {in_place("range"), in_place("need")},
       .attrs = kNone,
       .infer =
           [](const Operands& in) {
             return Types{in[0], in.same(0, 1)};
           },
       .cost = kMovesItsBytes,
       .remake = Remake::Never,
       .split = Split::Never,
       .gradient = kNoGradient},
  };
}

}  // namespace tandem::ops
