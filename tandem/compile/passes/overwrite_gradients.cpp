#include "tandem/compile/passes/overwrite_gradients.h"

#include <vector>

#include "tandem/ir/op_table.h"

namespace tandem {
namespace {

bool is_gradient(const Node& node) {
  return node.op == Op::State && node.attrs.text("category") == "gradients";
}

}  // namespace

Graph overwrite_gradients(Graph graph) {
  std::vector<int32_t> first_ops;
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    int gradients = 0, accumulators = 0;
    for (Value input : node.inputs) gradients += is_gradient(graph.node(input.node)) ? 1 : 0;
    if (gradients == 0) continue;
    for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i)
      accumulators += aliased_input(node, i) >= 0 ? 1 : 0;
    // An op marks all its accumulators: none may hold a sum already.
    if (!op_info(node.op).has_attr("fresh") || accumulators != gradients) return graph;
    first_ops.push_back(id);
  }
  for (int32_t id : first_ops) graph.node(id).attrs.set("fresh", int64_t{1});
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    if (is_gradient(graph.node(id))) graph.node(id).attrs.set("transient", int64_t{1});
  }
  return graph;
}

bool overwrites_gradients(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (is_gradient(node) && node.attrs.has("transient")) return true;
  }
  return false;
}

}  // namespace tandem
