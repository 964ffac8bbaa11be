// Products of the blocks' matrices in 8-bit floats: e4m3 for activations and weights, e5m2 for gradients,
// results in the storage type or fp32. Each tensor has one scale. That of a weight is taken from the weight
// itself, once a pass; that of an activation or a gradient from what the steps before have seen of it, which
// is kept in two states ("fp8.activations", "fp8.gradients") and brought up to date by the update. The matrix
// units keep fewer bits of a sum of 8-bit products than fp32 has, about 13.
//
// Changes: matmul and matmul_acc with a block's matrix, where rows, inputs and outputs are multiples of 16
//   -> fp8_matmul and fp8_matmul_acc of quantized operands; adds states and scales.
// Keeps: everything else in the storage type, the order of nodes, and what recomputation has chosen.
#pragma once

#include <string>
#include <vector>

#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

// The update brings the states up to date. In fuse, quantizing joins what comes before it.
inline constexpr PassInfo kFp8Pass = {
    .name = "fp8", .needs_before = {"differentiate", "recompute"}, .needs_after = {"update"}};

inline constexpr std::string_view kFp8Activations = "fp8.activations", kFp8Gradients = "fp8.gradients";

// The matrices of a model that are multiplied in 8 bits: each has a slot in both states, in this order. Every
// rank keeps all slots, whichever of the matrices it holds.
std::vector<std::string> fp8_weight_names(const Graph& forward);

// `slots`: of the whole model, where the graph is one rank's.
Graph quantize_products(const Graph& graph, const std::vector<std::string>& slots);
inline Graph quantize_products(const Graph& graph) {
  return quantize_products(graph, fp8_weight_names(graph));
}

// An Fp8Quantize whose input nobody else reads joins the op that makes it: swiglu and its gradient. Bits
// stay.
Graph fuse_quantize(Graph graph);

// A leaf for a state, or for what this step needs of it.
Node fp8_state(std::string_view name, int64_t slots, Phase phase);
Node fp8_need(std::string_view name, int64_t slots, Phase phase);

}  // namespace tandem
