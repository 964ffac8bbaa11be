#include "tandem/compile/lower.h"

#include "tandem/compile/cost.h"
#include "tandem/ir/infer.h"

namespace tandem {

Executable lower(std::string name, const Graph& graph, const MemoryPlan& plan, const ChooseKernel& choose) {
  Executable executable;
  executable.name = std::move(name);
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    if (node.op == Op::Input) executable.inputs.push_back({node.name, plan.slices.at({id, 0})});
    if (is_leaf(node.op) || node.op == Op::Reshape) continue;
    const std::vector<TensorType> in = input_types(graph, node);
    const KernelChoice choice = choose(node, in);
    const Cost cost = node_cost(node, in);
    Command command;
    command.kernel = choice.name;
    command.op = node.op;
    for (Value input : node.inputs) command.in.push_back(plan.slices.at(input));
    for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
      command.out.push_back(plan.slices.at({id, i}));
    }
    command.attrs = node.attrs;
    command.workspace_bytes = choice.workspace_bytes;
    command.block = node.block;
    command.phase = node.phase;
    command.flops = cost.flops;
    command.bytes = cost.bytes;
    executable.commands.push_back(std::move(command));
    executable.live_bytes.push_back(plan.live_bytes[static_cast<size_t>(id)]);
  }
  for (const GraphOutput& output : graph.outputs()) {
    executable.outputs.push_back({output.name, plan.slices.at(output.value)});
  }
  return executable;
}

}  // namespace tandem
