// The gradient of a bias is the column sums of a large tensor, which is not read just for that.
//
// Changes: bias_grad becomes part of the gradient that writes the tensor, a norm's or attention's
//   ({sums: 1}), or else of the weight gradient that reads it (matmul_bias_acc). A norm of another block
//   makes the sums only where `sums_across_blocks` says so: a pipeline may cut between two blocks, and gives
//   the bits of one rank that accumulates, so there must be nothing to accumulate.
// Keeps: values, but for the order of the sums.
// A part of fuse: the residual's gradient is part of the norm's by then.
#pragma once

#include "tandem/compile/passes/fuse.h"

namespace tandem {

Graph fuse_bias_sums(const Graph& graph, const FuseOptions& options);

}  // namespace tandem
