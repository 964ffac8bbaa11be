// The second half of a step as a graph: global norm, clipping and the optimizer over all parameters at once.
#pragma once

#include "tandem/compile/precision.h"
#include "tandem/config/config.h"
#include "tandem/ir/graph.h"

namespace tandem {

// Built from the parameters and gradient states of a differentiated graph. Weight decay applies to matrices
// (two or more dims), not to norms and biases. Outputs: "norm" (norm of the unclipped gradient, finite flag).
Graph build_update(const Graph& pass, OptimizerKind optimizer, const PrecisionPolicy& policy);

}  // namespace tandem
