// Gradients that are written, not added to: where a step is one pass, the first op to touch a gradient need
// not read it, the optimizer need not clear it, and nobody needs it from one step to the next: it can lie
// where activations lay.
//
// Changes: the first op that adds to each gradient gets {fresh: 1}, and the gradient itself {transient: 1}.
// Keeps: values, as every gradient is zero before the pass.
// Kernels must honour both, and the update's {keep: 1}.
#pragma once

#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

inline constexpr PassInfo kOverwriteGradientsPass = {.name = "overwrite_gradients",
                                                     .needs_before = {"differentiate"},
                                                     .needs_after = {"update"},
                                                     .optional = true};

// The graph as it is where some gradient's first op cannot overwrite it.
Graph overwrite_gradients(Graph graph);

bool overwrites_gradients(const Graph& graph);

}  // namespace tandem
