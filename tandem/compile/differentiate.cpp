#include "tandem/compile/differentiate.h"

#include "tandem/base/error.h"
#include "tandem/compile/gradient_table.h"

namespace tandem {

Graph differentiate(const Graph& forward, DType grad_dtype) {
  TANDEM_CHECK(!forward.outputs().empty(), "differentiate: the graph has no loss");
  const int32_t loss = forward.outputs().back().value.node;
  TANDEM_CHECK(forward.node(loss).op == Op::CrossEntropy && loss == forward.num_nodes() - 1,
               "differentiate: the last node must be the loss");
  const Value logits = forward.node(loss).inputs[0], targets = forward.node(loss).inputs[1];

  Graph graph;
  for (int32_t id = 0; id < loss; ++id) graph.add(forward.node(id));
  GradientContext context(graph, grad_dtype);
  for (int32_t id = 0; id < loss; ++id) {
    const Node& node = graph.node(id);
    bool reached = node.op == Op::Param;
    for (Value input : node.inputs) reached = reached || context.wants(input);
    for (int32_t i = 0; reached && i < static_cast<int32_t>(node.outputs.size()); ++i)
      context.mark_reachable({id, i});
  }

  const Value scale =
      graph.add({Op::Input, {}, {}, {{DType::F32, Shape({1})}}, kNoBlock, Phase::Backward, "scale"});
  const Value dlogits = context.emit(Op::CrossEntropyGrad, {logits, targets, scale});
  graph.add_output("stats", {dlogits.node, 1});
  context.add(logits, dlogits);
  for (int32_t id = loss - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    if (is_leaf(node.op) || !context.grad({id, 0}).valid()) continue;
    const GradientRule rule = gradient_rule(node.op);
    if (rule == nullptr) throw ConfigError("{}: this op cannot be trained through", op_name(node.op));
    context.enter(node.block);
    rule(context, id);
  }
  return graph;
}

}  // namespace tandem
