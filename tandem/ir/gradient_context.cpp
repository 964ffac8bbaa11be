#include "tandem/ir/gradient_context.h"

#include <algorithm>
#include <iterator>

#include "tandem/base/error.h"
#include "tandem/ir/infer.h"

namespace tandem {

GradientContext::GradientContext(Graph& graph, GradientTypes types, bool split_tied)
    : graph_(graph), types_(types) {
  if (!split_tied) return;
  std::set<Value> tables, others;
  for (const Node& node : graph.nodes()) {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      (node.op == Op::Embedding && i == 1 ? tables : others).insert(node.inputs[i]);
  }
  std::set_intersection(tables.begin(), tables.end(), others.begin(), others.end(),
                        std::inserter(split_tables_, split_tables_.end()));
}

GradientContext::Part GradientContext::part_for_embedding(Value table) const {
  return split_tables_.contains(table) ? Part::Embedding : Part::Whole;
}

void GradientContext::set_accumulator(Value param, Value updated, Part part) {
  if (wants(param)) accumulators_[{param, part}] = updated;
}

Value GradientContext::grad(Value value) const {
  const auto it = grads_.find(value);
  return it == grads_.end() ? Value{} : it->second;
}

bool GradientContext::wants(Value value) const { return reachable_.contains(value); }

void GradientContext::add(Value value, Value gradient) {
  if (!wants(value)) return;
  if (is_param(value)) {
    throw ConfigError(
        "parameter '{}': used where it cannot be trained; parameters are the weights of linear, matmul's "
        "right "
        "operand, conv2d, norms and embedding",
        graph_.node(value.node).name);
  }
  const auto [it, fresh] = grads_.try_emplace(value, gradient);
  if (!fresh) it->second = emit(Op::Add, {gradient, it->second});
}

Value GradientContext::accumulator(Value param, Part part) {
  const auto it = accumulators_.find({param, part});
  if (it != accumulators_.end()) return it->second;
  const Node& node = graph_.node(param.node);
  if (!is_param(param)) throw ConfigError("{}: a weight, gain or bias must be a parameter", op_name(node.op));
  if (!wants(param)) {
    const DType forgotten = node.outputs[0].dtype == DType::F64 ? DType::F64 : DType::F32;
    return emit(
        Op::Zeros, {},
        {{"dtype", std::string(dtype_name(forgotten))}, {"shape", shape_attr(node.outputs[0].shape)}});
  }
  const bool block_matrix = node.block != kNoBlock && node.outputs[0].shape.rank() > 1;
  const DType wanted = block_matrix ? types_.block_matrices : types_.others;
  const DType dtype = node.outputs[0].dtype == DType::F64 ? DType::F64 : wanted;
  std::string name = "grad:" + node.name + std::string(part == Part::Embedding ? kEmbeddingPart : "");
  Node state =
      zero_state(std::move(name), {dtype, node.outputs[0].shape}, "gradients", Phase::Backward, node.block);
  return accumulators_[{param, part}] = graph_.add(std::move(state));
}

Value GradientContext::emit(Op op, std::vector<Value> inputs, Attrs attrs) {
  return append(graph_, op, std::move(inputs), std::move(attrs), block_, Phase::Backward);
}

}  // namespace tandem
