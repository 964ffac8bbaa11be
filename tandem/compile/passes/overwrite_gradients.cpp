#include "tandem/compile/passes/overwrite_gradients.h"

#include <vector>

#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"
#include "tandem/ir/op_table.h"

namespace tandem {
namespace {

bool is_gradient(const Node& node) { return node.op == Op::State && node.name.starts_with("grad:"); }

// The gradients that this node is the first to touch.
std::vector<Value> first_touched(const Graph& graph, const Node& node) {
  std::vector<Value> gradients;
  for (Value input : node.inputs) {
    if (is_gradient(graph.node(input.node))) gradients.push_back(input);
  }
  return gradients;
}

// With {fresh: 1} an op overwrites all its accumulators: none may hold a sum already.
bool can_overwrite(const Node& node, size_t num_gradients) {
  size_t accumulators = 0;
  for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i)
    accumulators += aliased_input(node, i) >= 0 ? 1 : 0;
  return op_info(node.op).has_attr("fresh") && accumulators == num_gradients;
}

}  // namespace

Graph overwrite_gradients(const Graph& graph) {
  Rewrite rewrite(graph);
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    const std::vector<Value> gradients = first_touched(graph, node);
    const bool overwrites = !gradients.empty() && can_overwrite(node, gradients.size());
    if (!overwrites) {
      for (Value gradient : gradients) {
        const TensorType& type = graph.type(gradient);
        const Attrs attrs{{"dtype", std::string(dtype_name(type.dtype))}, {"shape", shape_attr(type.shape)}};
        const Value leaf = rewrite.at(gradient);
        rewrite.set(gradient, append(rewrite.graph(), Op::Zeros, {leaf}, attrs, node.block, Phase::Backward));
      }
    }
    Attrs& attrs = rewrite.graph().node(rewrite.copy(id)).attrs;
    if (overwrites) attrs.set("fresh", int64_t{1});
    if (is_gradient(node)) attrs.set("transient", int64_t{1});
  }
  return rewrite.finish();
}

bool overwrites_gradients(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (is_gradient(node) && node.attrs.has("transient")) return true;
  }
  return false;
}

}  // namespace tandem
