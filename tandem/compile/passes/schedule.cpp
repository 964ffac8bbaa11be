#include "tandem/compile/passes/schedule.h"

#include "tandem/compile/rewrite.h"

namespace tandem {

Graph schedule(const Graph& graph) {
  Rewrite rewrite(graph);
  for (int32_t id = 0; id < graph.num_nodes(); ++id) rewrite.copy_leaf(id);
  const auto place = [&](auto& self, int32_t id) -> void {
    if (rewrite.has({id, 0})) return;
    for (Value input : graph.node(id).inputs) self(self, input.node);
    rewrite.copy(id);
  };
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    if (graph.node(id).phase != Phase::Recompute) place(place, id);
  }
  return rewrite.finish();
}

}  // namespace tandem
