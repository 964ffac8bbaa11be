// The order in which nodes run.
//
// Changes: leaves come first; a recomputed node moves down to just before its first reader, so that what it
//   makes is alive as briefly as possible.
// Keeps: the values and the order of everything else (sums are made in the order the model was written).
// Needs before: every pass that adds nodes. Needs after: memory plan.
#pragma once

#include "tandem/ir/graph.h"

namespace tandem {

Graph schedule(const Graph& graph);

}  // namespace tandem
