// Outputs that backward has at hand: the gradient of a norm, or of SwiGLU, reads all that the forward's
// output is made of, so it can give that output again for the price of writing it. The gradients of the
// weights that the output was multiplied with are then all that reads it in backward, and they can wait.
//
// This is what recompute: selective is where the backend's kernels can do it: nothing runs twice.
//
// Changes: such a gradient op gets {again: 1} and the forward's output as one more of its own; backward's
//   products that read the forward's read that one, and move to just behind it.
// Keeps: the values, bit for bit (the kernels give the forward's bits); what is outside of blocks: the loss
//   begins backward with the last norm's output; outputs that something reads which cannot wait.
// Kernels must honour {again}.
#pragma once

#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

// It comes before recompute, which then has less to drop.
inline constexpr PassInfo kAgainPass = {.name = "again", .needs_before = {"differentiate"}, .optional = true};

Graph remake_outputs(const Graph& graph);

}  // namespace tandem
