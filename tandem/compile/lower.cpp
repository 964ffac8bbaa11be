#include "tandem/compile/lower.h"

#include <array>

#include "tandem/compile/cost.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

bool overlap(const Slice& a, const Slice& b) {
  return a.arena == b.arena && a.offset < b.offset + b.type.bytes() && b.offset < a.offset + a.type.bytes();
}

bool any_overlap(const std::vector<Slice>& a, const std::vector<Slice>& b) {
  for (const Slice& x : a) {
    for (const Slice& y : b) {
      if (overlap(x, y)) return true;
    }
  }
  return false;
}

// Whether `later` must wait for `earlier`: one writes bytes that the other touches.
bool conflict(const Command& later, const Command& earlier) {
  return any_overlap(later.out, earlier.out) || any_overlap(later.out, earlier.in) ||
         any_overlap(later.in, earlier.out);
}

// Commands reach the streams in list order, and each stream runs them in that order; computation is done with
// a command before it goes on. So only what other streams may still be doing has to be waited for, and
// whether it matters is read off the bytes themselves.
void add_waits(std::vector<Command>& commands) {
  std::array<std::vector<int32_t>, kNumStreams> running;  // per stream, oldest first
  for (int32_t id = 0; id < static_cast<int32_t>(commands.size()); ++id) {
    Command& command = commands[static_cast<size_t>(id)];
    for (int32_t stream = 1; stream < kNumStreams; ++stream) {
      if (stream == command.stream) continue;
      std::vector<int32_t>& list = running[static_cast<size_t>(stream)];
      for (size_t i = list.size(); i-- > 0;) {
        if (!conflict(command, commands[static_cast<size_t>(list[i])])) continue;
        command.waits.push_back(list[i]);
        // Only computation itself is known to have waited when the next command comes.
        if (command.stream == kComputeStream)
          list.erase(list.begin(), list.begin() + static_cast<long>(i) + 1);
        break;
      }
    }
    if (command.stream != kComputeStream) running[static_cast<size_t>(command.stream)].push_back(id);
  }
}

KernelChoice choose_for(const Node& node, const std::vector<TensorType>& in, bool on_host,
                        const ChooseKernel& choose) {
  if (is_collective(node.op)) return {"comm." + std::string(op_name(node.op)), 0};
  return choose(node, in, on_host);
}

}  // namespace

Executable lower(std::string name, const Graph& graph, const MemoryPlan& plan, const ChooseKernel& choose) {
  Executable executable;
  executable.name = std::move(name);
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    if (node.op == Op::Input) executable.inputs.push_back({node.name, plan.slices.at({id, 0})});
    const bool unset = node.op == Op::Zeros && node.attrs.integer_or("unset", 0) != 0;
    if (is_leaf(node.op) || is_view(node.op) || unset) continue;
    const std::vector<TensorType> in = input_types(graph, node);
    const Cost cost = node_cost(node, in);
    Command command;
    command.op = node.op;
    for (Value input : node.inputs) command.in.push_back(plan.slices.at(input));
    for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
      command.out.push_back(plan.slices.at({id, i}));
    }
    command.attrs = node.attrs;
    const KernelChoice choice = choose_for(node, in, runs_on_host(command), choose);
    command.kernel = choice.name;
    command.workspace_bytes = choice.workspace_bytes;
    command.block = node.block;
    command.phase = node.phase;
    command.stream = stream_of(node);
    command.flops = cost.flops;
    command.sent_bytes = cost.sent;
    command.bytes = cost.bytes;
    executable.commands.push_back(std::move(command));
    executable.live_bytes.push_back(plan.live_bytes[static_cast<size_t>(id)]);
  }
  add_waits(executable.commands);
  for (const GraphOutput& output : graph.outputs()) {
    executable.outputs.push_back({output.name, plan.slices.at(output.value)});
  }
  return executable;
}

}  // namespace tandem
