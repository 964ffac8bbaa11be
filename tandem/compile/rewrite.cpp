#include "tandem/compile/rewrite.h"

#include "tandem/base/error.h"
#include "tandem/ir/infer.h"

namespace tandem {

Value Rewrite::at(Value old_value) const {
  const auto it = map_.find(old_value);
  TANDEM_CHECK(it != map_.end(), "rewrite: %{}:{} ({}) has no counterpart yet", old_value.node,
               old_value.index, op_name(old_.node(old_value.node).op));
  return it->second;
}

int32_t Rewrite::copy(int32_t old_id) {
  Node node = old_.node(old_id);
  for (Value& input : node.inputs) input = at(input);
  if (!is_leaf(node.op)) node.outputs = infer_outputs(node.op, input_types(new_, node), node.attrs);
  const auto num_outputs = static_cast<int32_t>(node.outputs.size());
  const int32_t id = new_.add(std::move(node)).node;
  for (int32_t i = 0; i < num_outputs; ++i) map_[{old_id, i}] = {id, i};
  return id;
}

void Rewrite::copy_leaf(int32_t old_id) {
  if (is_leaf(old_.node(old_id).op) && !has({old_id, 0})) copy(old_id);
}

Graph Rewrite::finish() {
  for (const GraphOutput& output : old_.outputs()) new_.add_output(output.name, at(output.value));
  return std::move(new_);
}

Value storage_of(const Graph& graph, Value value) {
  for (;;) {
    const Node& node = graph.node(value.node);
    const int shared = aliased_input(node, value.index);
    if (shared < 0) return value;
    value = node.inputs[static_cast<size_t>(shared)];
  }
}

std::set<int32_t> with_sources(const Graph& graph, std::set<int32_t> nodes) {
  for (int32_t id = graph.num_nodes() - 1; id >= 0; --id) {
    if (!nodes.contains(id)) continue;
    for (Value input : graph.node(id).inputs) nodes.insert(input.node);
  }
  return nodes;
}

std::map<Value, std::vector<int32_t>> readers(const Graph& graph) {
  std::map<Value, std::vector<int32_t>> result;
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    for (Value input : graph.node(id).inputs) {
      auto& list = result[input];
      if (list.empty() || list.back() != id) list.push_back(id);
    }
  }
  return result;
}

}  // namespace tandem
