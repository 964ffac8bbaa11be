// The statistics of the loss over the passes of a step, added up where they are made: on several ranks the
// update sends them along with the norm, and no host has to carry them from one to the other.
//
// Changes: adds a state, and after the rest of the graph its sum with the output "stats".
// Keeps: everything else; a graph without that output as it is.
#pragma once

#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

// The update takes the sum and clears it.
inline constexpr PassInfo kLossStatsPass = {
    .name = "loss_stats", .needs_before = {"differentiate"}, .needs_after = {"update"}};

Graph sum_stats(Graph graph, bool fixed_order);  // fixed: the sum does not show in which order it was made

Node loss_stats_state(Phase phase);  // a leaf f64[2]

}  // namespace tandem
