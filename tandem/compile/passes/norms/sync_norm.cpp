#include "tandem/compile/passes/norms/sync_norm.h"

#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"

namespace tandem {

Graph sync_norm(const Graph& forward, const MeshPosition& at) {
  const int64_t size = at.shape.data;
  Rewrite rewrite(forward);
  for (int32_t id = 0; id < forward.num_nodes(); ++id) {
    const Node& node = forward.node(id);
    if (node.op != Op::BatchNorm || node.attrs.integer_or("sync", 0) == 0 || size == 1) {
      rewrite.copy(id);
      continue;
    }
    std::vector<Value> inputs;
    for (Value input : node.inputs) inputs.push_back(rewrite.at(input));
    Graph& graph = rewrite.graph();
    const Value mine = append(graph, Op::BatchNormStats, {inputs[0]}, {}, node.block);
    inputs.push_back(append(graph, Op::AllGather, {mine}, {{"axis", "data"}, {"size", size}}, node.block));
    const Value made =
        append(graph, Op::BatchNormApply, inputs,
               {{"eps", node.attrs.real("eps")}, {"momentum", node.attrs.real("momentum")}, {"size", size}},
               node.block);
    for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i)
      rewrite.set({id, i}, {made.node, i});
  }
  return rewrite.finish();
}

}  // namespace tandem
