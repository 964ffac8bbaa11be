// Gradients that are written, not added to: where a step is one pass, the first op to touch a gradient need
// not read it, the optimizer need not clear it, and nobody needs it from one step to the next: it can lie
// where activations lay. Ranks that reduce the gradients of every pass into their parts begin each pass anew,
// too, however many make a step.
//
// Changes: the first op that adds to each gradient gets {fresh: 1}, or, where it cannot overwrite, a zeros
//   before it; the gradient itself gets {transient: 1}.
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

Graph overwrite_gradients(const Graph& graph);

bool overwrites_gradients(const Graph& graph);

}  // namespace tandem
