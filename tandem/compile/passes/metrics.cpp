#include "tandem/compile/passes/metrics.h"

#include <algorithm>

#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

bool is_metric(const GraphOutput& output) { return output.name.starts_with(kMetricPrefix); }

}  // namespace

std::vector<std::string> metric_names(const Graph& forward) {
  std::vector<std::string> names;
  for (const GraphOutput& output : forward.outputs()) {
    if (is_metric(output)) names.push_back(output.name.substr(kMetricPrefix.size()));
  }
  return names;
}

Graph sum_metrics(Graph graph, const std::vector<std::string>& names, bool fixed_order) {
  std::vector<GraphOutput> metrics;
  std::ranges::copy_if(graph.outputs(), std::back_inserter(metrics), is_metric);
  std::erase_if(graph.outputs(), is_metric);
  if (metrics.empty()) return graph;
  Value sums = graph.add(metric_sums_state(names.size(), Phase::Backward));
  for (const GraphOutput& metric : metrics) {
    const auto place = std::ranges::find(names, metric.name.substr(kMetricPrefix.size()));
    Attrs attrs{{"at", static_cast<int64_t>(place - names.begin())}};
    if (fixed_order) attrs.set("fixed", int64_t{1});
    sums = append(graph, Op::AddStats, {sums, metric.value}, attrs, kNoBlock, Phase::Backward);
  }
  return graph;
}

Node metric_sums_state(size_t count, Phase phase) {
  return zero_state(std::string(kMetricSums), {DType::F64, Shape({static_cast<int64_t>(count)})}, "gradients",
                    phase);
}

}  // namespace tandem
