#include "tandem/compile/passes/loss/mix_images.h"

#include "tandem/compile/rewrite.h"

namespace tandem {
namespace {

Value input(Graph& graph, std::string_view name, DType dtype, const Shape& shape) {
  if (const Value there = graph.find(name); there.valid()) return there;
  return graph.add({Op::Input, {}, {}, {{dtype, shape}}, kNoBlock, Phase::Forward, std::string(name)});
}

}  // namespace

Graph mix_images(const Graph& graph) {
  Rewrite rewrite(graph);
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    if (graph.node(id).op != Op::CrossEntropyGrad) {
      rewrite.copy(id);
      continue;
    }
    Node node = graph.node(id);
    const Shape targets = graph.type(node.inputs[1]).shape;
    for (Value& each : node.inputs) each = rewrite.at(each);
    node.inputs.push_back(input(rewrite.graph(), kPartnerInput, DType::I32, targets));
    node.inputs.push_back(input(rewrite.graph(), kShareInput, DType::F32, targets));
    const int32_t made = rewrite.graph().add(std::move(node)).node;
    for (int32_t i : {0, 1}) rewrite.set({id, i}, {made, i});
  }
  return rewrite.finish();
}

}  // namespace tandem
