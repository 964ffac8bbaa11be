// A model's own metrics over the passes of a step, added up where they are made.
//
// Changes: each output "metric:NAME" is added to a state, each at its place, and is an output no more. Ranks
// of
//   the tensor axis have means of all rows or of their own, as many each: their mean is that of all.
// Keeps: everything else; a graph without such outputs as it is.
#pragma once

#include <string>
#include <vector>

#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

// The update takes the sums and clears them.
inline constexpr PassInfo kMetricsPass = {
    .name = "metrics", .needs_before = {"differentiate"}, .needs_after = {"update"}};

// Names of a model's metrics, in the order of their places.
std::vector<std::string> metric_names(const Graph& forward);

// In fixed order, the sum does not show in which order it was made.
Graph sum_metrics(Graph graph, const std::vector<std::string>& names, bool fixed_order);

inline constexpr std::string_view kMetricSums = "metric_sums";
Node metric_sums_state(size_t count, Phase phase);  // a leaf f64[count]

}  // namespace tandem
