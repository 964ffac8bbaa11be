#include "tandem/ir/graph.h"

#include "tandem/ir/op_table.h"

namespace tandem {

Value Graph::add(Node node) {
  if (is_leaf(node.op)) leaves_.try_emplace(node.name, num_nodes());
  nodes_.push_back(std::move(node));
  return {num_nodes() - 1, 0};
}

const TensorType& Graph::type(Value value) const {
  return node(value.node).outputs.at(static_cast<size_t>(value.index));
}

Value Graph::find(std::string_view leaf_name) const {
  const auto it = leaves_.find(leaf_name);
  return it == leaves_.end() ? Value{} : Value{it->second, 0};
}

bool is_leaf(Op op) { return op_info(op).kind == OpKind::Leaf; }
bool is_view(Op op) { return op_info(op).kind == OpKind::View; }
bool is_collective(Op op) { return op_info(op).kind == OpKind::Collective; }

bool is_transient(const Node& node) {
  return node.op == Op::State && node.attrs.integer_or("transient", 0) != 0;
}

int64_t aliased_offset(const Node& node) {
  return node.op == Op::View ? node.attrs.integer("begin") * dtype_bytes(node.outputs[0].dtype) : 0;
}

Node zero_state(std::string name, TensorType type, std::string_view category, Phase phase, int32_t block) {
  const Attrs attrs{{"category", std::string(category)}, {"init", "zeros"}};
  return {Op::State, {}, attrs, {std::move(type)}, block, phase, std::move(name)};
}

}  // namespace tandem
