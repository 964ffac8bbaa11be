#include "tandem/compile/cost.h"

#include "tandem/ir/infer.h"
#include "tandem/ir/op_table.h"

namespace tandem {

Cost node_cost(const Node& node, std::span<const TensorType> in) {
  const CostRules& rules = op_info(node.op).cost;
  return {rules.flops.get()(node, in), rules.bytes.get()(node, in), rules.sent.get()(node, in)};
}

int64_t forward_model_flops(const Graph& forward) {
  int64_t flops = 0;
  for (const Node& node : forward.nodes()) flops += node_cost(node, input_types(forward, node)).flops;
  return flops;
}

}  // namespace tandem
