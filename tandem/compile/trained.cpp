#include "tandem/compile/trained.h"

#include "tandem/compile/cost.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

bool begins_gradients(const Node& node) {
  if (node.op == Op::Param) return !is_frozen(node);
  return node.op == Op::Recv && node.attrs.integer_or("untrained", 0) == 0;
}

template <typename Begins>
std::set<Value> reached_from(const Graph& forward, const Begins& begins) {
  std::set<Value> reached;
  for (int32_t id = 0; id < forward.num_nodes(); ++id) {
    const Node& node = forward.node(id);
    bool leads = begins(node);
    for (Value input : node.inputs) leads = leads || reached.contains(input);
    for (int32_t i = 0; leads && i < static_cast<int32_t>(node.outputs.size()); ++i) reached.insert({id, i});
  }
  return reached;
}

}  // namespace

bool is_frozen(const Node& param) { return param.attrs.integer_or("frozen", 0) != 0; }

std::set<Value> trained_values(const Graph& forward) { return reached_from(forward, begins_gradients); }

int64_t training_model_flops(const Graph& forward) {
  const std::set<Value> trained = trained_values(forward);
  const std::set<Value> all =
      reached_from(forward, [](const Node& node) { return node.op == Op::Param || node.op == Op::Recv; });
  int64_t flops = 3 * forward_model_flops(forward);
  for (int32_t id = 0; id < forward.num_nodes(); ++id) {
    const Node& node = forward.node(id);
    if (node.inputs.empty() || !all.contains({id, 0})) continue;
    const int64_t forward_flops = node_cost(node, input_types(forward, node)).flops;
    if (!trained.contains({id, 0})) {
      flops -= 2 * forward_flops;
    } else if (node.op == Op::Matmul || node.op == Op::Conv2d) {  // a product for each operand's gradient
      for (size_t i = 0; i < 2; ++i)
        flops -= all.contains(node.inputs[i]) && !trained.contains(node.inputs[i]) ? forward_flops : 0;
    }
  }
  return flops;
}

}  // namespace tandem
