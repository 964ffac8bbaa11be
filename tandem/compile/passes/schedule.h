// The order in which nodes run.
//
// Changes: leaves come first; a recomputed node moves down to just before its first reader, so that what it
//   makes is alive as briefly as possible.
// Keeps: the values and the order of everything else (sums are made in the order the model was written).
#pragma once

#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

// Every pass that adds nodes comes before.
inline constexpr PassInfo kSchedulePass = {.name = "schedule",
                                           .needs_before = {"recompute", "fp8", "fuse", "data"}};

Graph schedule(const Graph& graph);

}  // namespace tandem
