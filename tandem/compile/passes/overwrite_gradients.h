// Gradients that are written, not added to: where a step is one pass, the first op to touch a gradient need
// not read it, the optimizer need not clear it, and nobody needs it from one step to the next: it can lie
// where activations lay.
//
// Changes: the first op that adds to each gradient gets {fresh: 1}, and the gradient itself {transient: 1}.
// Keeps: values, as every gradient is zero before the pass.
// Needs before: differentiate. Needs after: optimizer ops with {keep: 1}; kernels that honour both.
#pragma once

#include "tandem/ir/graph.h"

namespace tandem {

// False, and no change, where some gradient's first op cannot overwrite it.
bool overwrite_gradients(Graph& graph);

}  // namespace tandem
