#include "tandem/compile/passes/differentiate.h"

#include "tandem/base/error.h"
#include "tandem/compile/passes/loss/loss_scaler.h"
#include "tandem/compile/trained.h"
#include "tandem/ir/gradient_context.h"
#include "tandem/ir/infer.h"
#include "tandem/ir/op_table.h"

namespace tandem {
namespace {

// Turns the logits into their gradient. Where the vocabulary is split (vocab_parts, all_gather, vocab_loss),
// every rank does so for its own columns, with the parts that forward has gathered.
Value emit_loss_grad(GradientContext& context, const Node& loss, Value logits, Value scale) {
  const Value targets = loss.inputs[1];
  if (loss.op == Op::CrossEntropy)
    return context.emit(Op::CrossEntropyGrad, {logits, targets, scale}, loss.attrs);
  const Node& gather = context.graph().node(loss.inputs[0].node);
  Attrs attrs = context.graph().node(gather.inputs[0].node).attrs;
  attrs.set("size", loss.attrs.integer("size"));
  return context.emit(Op::VocabLossGrad, {logits, targets, loss.inputs[0], scale}, attrs);
}

Value logits_of(const Graph& forward, const Node& loss) {
  if (loss.op == Op::CrossEntropy) return loss.inputs[0];
  const Node& gather = forward.node(loss.inputs[0].node);
  return forward.node(gather.inputs[0].node).inputs[0];
}

void begin_at_loss(GradientContext& context, const Graph& forward, const Node& loss, bool scaled) {
  Graph& graph = context.graph();
  const Value logits = logits_of(forward, loss);
  Value scale =
      graph.add({Op::Input, {}, {}, {{DType::F32, Shape({1})}}, kNoBlock, Phase::Backward, "scale"});
  if (scaled) scale = context.emit(Op::ScaleLoss, {scale, graph.add(loss_scaler_state(Phase::Backward))});
  const Value dlogits = emit_loss_grad(context, loss, logits, scale);
  graph.add_output("stats", {dlogits.node, 1});
  context.add(logits, dlogits);
}

void begin_at_send(GradientContext& context, const Node& send) {
  const Value sent = send.inputs[0];
  const TensorType type = context.graph().type(sent);
  Attrs attrs = send.attrs;
  attrs.set("dtype", std::string(dtype_name(type.dtype)));
  attrs.set("shape", shape_attr(type.shape));
  context.add(sent, context.emit(Op::Recv, {}, attrs));
}

}  // namespace

Graph differentiate(const Graph& forward, const PrecisionPolicy& precision, bool split_tied) {
  TANDEM_CHECK(forward.num_nodes() > 0, "differentiate: the graph is empty");
  const Node& root = forward.nodes().back();
  const bool sends = root.op == Op::Send;
  TANDEM_CHECK(sends || root.op == Op::CrossEntropy || root.op == Op::VocabLoss,
               "differentiate: the last node must be the loss, or a send to the next chunk");
  const int32_t num_kept = forward.num_nodes() - (sends ? 0 : 1);

  Graph graph;
  for (int32_t id = 0; id < num_kept; ++id) graph.add(forward.node(id));
  for (const GraphOutput& output : forward.outputs()) {
    if (output.name.starts_with(kMetricPrefix)) graph.add_output(output.name, output.value);
  }
  const GradientTypes types{.block_matrices = precision.block_gradients, .others = precision.gradients};
  GradientContext context(graph, types, split_tied);
  for (Value value : trained_values(graph)) context.mark_reachable(value);

  if (sends && root.attrs.integer_or("untrained", 0) != 0) return graph;
  if (sends) {
    begin_at_send(context, root);
  } else {
    begin_at_loss(context, forward, root, precision.scales_loss());
  }
  for (int32_t id = num_kept - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    if (is_leaf(node.op) || !context.grad({id, 0}).valid()) continue;
    const GradientRule rule = op_info(node.op).gradient;
    if (rule == nullptr) throw ConfigError("{}: this op cannot be trained through", op_name(node.op));
    context.enter(node.block);
    rule(context, id);
  }
  return graph;
}

}  // namespace tandem
