// The words that entries of the op table are written in (op_table.h says what the parts are), and the groups.
#pragma once

#include <span>
#include <vector>

#include "tandem/ir/gradient_context.h"
#include "tandem/ir/infer.h"
#include "tandem/ir/op_table.h"
#include "tandem/ir/ops/operands.h"

namespace tandem::ops {

using Types = std::vector<TensorType>;
using Context = GradientContext;

// --- inputs, outputs, attributes ------------------------------------------------------------------------
inline InputInfo optional(InputInfo input) {
  input.optional = true;
  return input;
}
inline InputInfo each(InputInfo input) {  // (a, b)... is each("a"), each("b")
  input.repeated = true;
  return input;
}
inline InputInfo when(std::string_view attr, InputInfo input) {
  input.attr = attr;
  return input;
}
inline OutputInfo out_when(std::string_view attr, OutputInfo output) {
  output.attr = attr;
  return output;
}
inline OutputInfo in_place(std::string_view input) {
  OutputInfo output = OutputInfo(input).into(input);
  output.in_place = true;
  return output;
}

inline AttrInfo integer(std::string_view name) { return {name, AttrType::Integer, true}; }
inline AttrInfo real(std::string_view name) { return {name, AttrType::Real, true}; }
inline AttrInfo text(std::string_view name) { return {name, AttrType::Text, true}; }
inline AttrInfo optional(AttrInfo attr) {
  attr.required = false;
  return attr;
}

// --- inference ------------------------------------------------------------------------------------------
// Outputs that have the types of these inputs.
template <size_t... kInputs>
Types like(const Operands& in) {
  return {in[kInputs]...};
}

// Where a step with a cache stands, i32[2]: the position of its first row, and how many of its rows are real.
inline void check_position(const Operands& in, size_t i) {
  in.require(in[i] == TensorType{DType::I32, Shape({2})}, "expected a position i32[2], found {}{}",
             dtype_name(in[i].dtype), in.show(i));
}

// --- cost -----------------------------------------------------------------------------------------------
inline int64_t nothing(const Node&, std::span<const TensorType>) { return 0; }
int64_t all_bytes(const Node& node, std::span<const TensorType> in);  // of its inputs and outputs

inline constexpr CostRules kCostsNothing = {.flops = nothing, .bytes = nothing, .sent = nothing};
inline constexpr CostRules kMovesItsBytes = {.flops = nothing, .bytes = all_bytes, .sent = nothing};
constexpr CostRules multiplies(CountRule flops) {
  return {.flops = flops, .bytes = all_bytes, .sent = nothing};
}
constexpr CostRules communicates(CountRule sent) {
  return {.flops = nothing, .bytes = all_bytes, .sent = sent};
}

// FLOPs of the product y = op(a) op(b).
inline int64_t product_flops(const TensorType& a, const TensorType& y, bool trans_a) {
  return 2 * y.shape.elems() * (trans_a ? a.shape.rows() : a.shape.last());
}

// --- gradient -------------------------------------------------------------------------------------------
inline constexpr GradientRule kNoGradient = nullptr;

// --- whole entries --------------------------------------------------------------------------------------
// Of an op with kernels that does no products, and that no model may use that is split over the tensor axis.
OpInfo unsplit(Op op, std::string_view name, std::string_view meaning, StatedList<InputInfo> inputs,
               StatedList<OutputInfo> outputs, StatedList<AttrInfo> attrs, InferRule infer, Remake remake,
               GradientRule gradient);

// --- groups ---------------------------------------------------------------------------------------------
std::vector<OpInfo> leaf_ops();
std::vector<OpInfo> linear_ops();
std::vector<OpInfo> fp8_ops();
std::vector<OpInfo> norm_ops();
std::vector<OpInfo> image_norm_ops();
std::vector<OpInfo> attention_ops();
std::vector<OpInfo> cached_attention_ops();
std::vector<OpInfo> qk_norm_ops();
std::vector<OpInfo> pointwise_ops();
std::vector<OpInfo> shape_ops();
std::vector<OpInfo> image_ops();
std::vector<OpInfo> embedding_ops();
std::vector<OpInfo> loss_ops();
std::vector<OpInfo> optimizer_ops();
std::vector<OpInfo> matrix_update_ops();
std::vector<OpInfo> factored_update_ops();
std::vector<OpInfo> collective_ops();

}  // namespace tandem::ops
