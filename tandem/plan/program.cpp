#include "tandem/plan/program.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "tandem/plan/collective_cost.h"

namespace tandem::plan {
namespace {

// The whole tensor of a collective.
double payload_of(const Command& command) {
  const Slice& whole = command.op == Op::AllGather ? command.out[0] : command.in[0];
  return static_cast<double>(whole.type.bytes());
}

Item collective_item(const Command& command, const Cluster& cluster, const MeshPosition& at) {
  Item item;
  item.axis = parse_axis(command.attrs.text("axis"));
  item.bytes = static_cast<double>(command.sent_bytes);
  if (command.op == Op::Send || command.op == Op::Recv) {
    item.kind = command.op == Op::Send ? Kind::Send : Kind::Recv;
    item.peer = static_cast<int>(command.attrs.integer("peer"));
    const int distance = std::abs(item.peer - at.pipeline) * at.shape.data * at.shape.tensor;
    item.between = distance >= cluster.gpus_per_node;
    if (command.op == Op::Send)
      item.seconds = send_seconds(cluster, distance, static_cast<double>(command.in[0].type.bytes()));
    return item;
  }
  const Group group = group_of(at.shape, item.axis, cluster.gpus_per_node);
  item.kind = item.axis == Axis::World && at.shape.pipeline > 1 ? Kind::World : Kind::Collective;
  item.between = group.nodes() > 1;
  item.seconds = collective_seconds(cluster, command.op, group, payload_of(command));
  return item;
}

Item work_item(const Command& command, const Cluster& cluster, int ranks_on_node) {
  const CommandCost cost = command_cost(cluster, command, ranks_on_node);
  Item item;
  item.kind = cost.work == Work::Host ? Kind::Host : cost.work == Work::Copy ? Kind::Copy : Kind::Kernel;
  item.seconds = cost.seconds;
  return item;
}

Sort sort_of(const Command& command) {
  if (command.op == Op::Attention || command.op == Op::AttentionGrad) return Sort::Attention;
  if (command.phase == Phase::Update) return Sort::Update;
  return command.flops > 0 ? Sort::Product : Sort::Other;
}

}  // namespace

std::vector<Item> program_of(const Executable& executable, const Cluster& cluster, const MeshPosition& at,
                             int64_t micro_batches) {
  const int ranks_on_node = std::min(cluster.gpus_per_node, at.shape.world());
  std::vector<Item> items;
  items.reserve(executable.commands.size());
  std::vector<int> place;                    // of each command on its stream
  std::array<int, kNumStreams> issued = {};  // on each stream so far
  for (const Command& command : executable.commands) {
    Item item = is_collective(command.op) ? collective_item(command, cluster, at)
                                          : work_item(command, cluster, ranks_on_node);
    item.stream = command.stream;
    item.command = &command;
    item.sort = sort_of(command);
    // One reduction for all passes, as others do it, is like a part of it with each.
    if (cluster.reduces_once && command.op == Op::ReduceScatter && item.axis == Axis::Data)
      item.seconds /= static_cast<double>(micro_batches);
    for (const int32_t wait : command.waits) {
      const int stream = executable.commands[static_cast<size_t>(wait)].stream;
      const int last = issued[static_cast<size_t>(stream)] - 1;
      item.waits.push_back({stream, last - place[static_cast<size_t>(wait)]});
    }
    place.push_back(issued[static_cast<size_t>(command.stream)]++);
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace tandem::plan
