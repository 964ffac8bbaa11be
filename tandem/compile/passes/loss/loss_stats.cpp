#include "tandem/compile/passes/loss/loss_stats.h"

#include <algorithm>

#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"

namespace tandem {

Graph sum_stats(Graph graph, bool fixed_order) {
  const auto stats = std::ranges::find(graph.outputs(), "stats", &GraphOutput::name);
  if (stats == graph.outputs().end()) return graph;
  const Value value = stats->value;
  const Value sum = graph.add(loss_stats_state(Phase::Backward));
  const Attrs attrs = fixed_order ? Attrs{{"fixed", int64_t{1}}} : Attrs{};
  append(graph, Op::AddStats, {sum, value}, attrs, kNoBlock, Phase::Backward);
  return graph;
}

Node loss_stats_state(Phase phase) {
  return zero_state("loss_stats", {DType::F64, Shape({2})}, "gradients", phase);
}

}  // namespace tandem
