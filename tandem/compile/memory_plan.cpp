#include "tandem/compile/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "tandem/base/error.h"

namespace tandem {
namespace {

int64_t align(int64_t bytes) { return (bytes + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment; }

Arena leaf_arena(const Node& node) {
  if (node.op == Op::Param) return Arena::Weights;
  const std::string& category = node.attrs.text("category");
  for (Arena arena : {Arena::Weights, Arena::Master, Arena::Gradients, Arena::Optimizer}) {
    if (arena_name(arena) == category) return arena;
  }
  TANDEM_CHECK(false, "state '{}' has category '{}'", node.name, category);
  return Arena::Weights;
}

struct Buffer {
  int64_t bytes = 0;
  int32_t first = 0;  // alive from node `first` to node `last`, both included
  int32_t last = 0;
  int64_t offset = 0;
};

// Lowest offset first, in the given order; each buffer avoids those placed before that live at the same time.
int64_t place(std::vector<Buffer>& buffers, const std::vector<size_t>& order) {
  int64_t top = 0;
  std::vector<size_t> placed;
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (size_t index : order) {
    Buffer& buffer = buffers[index];
    taken.clear();
    for (size_t other : placed) {
      const Buffer& b = buffers[other];
      if (b.first <= buffer.last && buffer.first <= b.last) taken.emplace_back(b.offset, b.offset + b.bytes);
    }
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (begin - offset >= buffer.bytes) break;
      offset = std::max(offset, end);
    }
    buffer.offset = offset;
    top = std::max(top, offset + buffer.bytes);
    placed.push_back(index);
  }
  return top;
}

// Groups values into buffers and finds how long each lives.
class Buffers {
 public:
  explicit Buffers(const Graph& graph) : graph_(graph) {
    find_last_reads();
    for (int32_t id = 0; id < graph.num_nodes(); ++id) add_outputs(id);
  }
  std::vector<Buffer>& list() { return buffers_; }
  bool has(Value value) const { return buffer_of_.contains(value); }
  size_t of(Value value) const { return buffer_of_.at(value); }

 private:
  void find_last_reads() {
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      for (Value input : graph_.node(id).inputs) last_read_[input] = id;
    }
    for (const GraphOutput& output : graph_.outputs()) last_read_[output.value] = graph_.num_nodes();
  }

  void add_outputs(int32_t id) {
    const Node& node = graph_.node(id);
    if (node.op == Op::Param || node.op == Op::State) return;
    for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
      const Value value{id, i};
      const auto it = last_read_.find(value);
      const int32_t last = it == last_read_.end() ? id : it->second;
      if (const int shared = aliased_input(node, i); shared >= 0) {
        const Value source = node.inputs[static_cast<size_t>(shared)];
        if (has(source)) join(value, of(source), last);  // else it lives with a persistent leaf
        continue;
      }
      if (const int reused = reusable_input(node, i); reused >= 0) {
        const Value source = node.inputs[static_cast<size_t>(reused)];
        if (has(source) && buffers_[of(source)].last == id && reads(node, of(source)) == 1 &&
            buffers_[of(source)].bytes == align(node.outputs[static_cast<size_t>(i)].bytes())) {
          join(value, of(source), last);
          continue;
        }
      }
      buffer_of_[value] = buffers_.size();
      // Inputs are written before the first node runs.
      buffers_.push_back(
          {align(node.outputs[static_cast<size_t>(i)].bytes()), node.op == Op::Input ? 0 : id, last, 0});
    }
  }

  void join(Value value, size_t buffer, int32_t last) {
    buffer_of_[value] = buffer;
    buffers_[buffer].last = std::max(buffers_[buffer].last, last);
  }

  int64_t reads(const Node& node, size_t buffer) const {
    return std::count_if(node.inputs.begin(), node.inputs.end(),
                         [&](Value input) { return has(input) && of(input) == buffer; });
  }

  const Graph& graph_;
  std::map<Value, int32_t> last_read_;
  std::map<Value, size_t> buffer_of_;
  std::vector<Buffer> buffers_;
};

}  // namespace

void PersistentLayout::add(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::Param && node.op != Op::State) continue;
    if (const auto it = index_.find(node.name); it != index_.end()) {
      TANDEM_CHECK(items_[it->second].slice.type == node.outputs[0], "leaf '{}' has two types", node.name);
      continue;
    }
    const Arena arena = leaf_arena(node);
    int64_t& size = sizes_[static_cast<size_t>(arena)];
    index_[node.name] = items_.size();
    items_.push_back({node.name, {arena, size, node.outputs[0]}, node.attrs.text("init")});
    size += align(node.outputs[0].bytes());
  }
}

const Slice& PersistentLayout::at(const std::string& name) const { return items_[index_.at(name)].slice; }

MemoryPlan plan_memory(const Graph& graph, const PersistentLayout& layout) {
  Buffers buffers(graph);
  std::vector<Buffer>& list = buffers.list();

  MemoryPlan plan;
  plan.live_bytes.assign(static_cast<size_t>(graph.num_nodes()), 0);
  for (const Buffer& b : list) {
    for (int32_t id = b.first; id <= std::min(b.last, graph.num_nodes() - 1); ++id) {
      plan.live_bytes[static_cast<size_t>(id)] += b.bytes;
    }
  }
  for (int64_t bytes : plan.live_bytes) plan.lower_bound = std::max(plan.lower_bound, bytes);

  // No single order of placement is best for every graph; they are cheap, so the smallest result wins.
  std::vector<size_t> order(list.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto lifetime = [&](size_t i) { return list[i].last - list[i].first; };
  std::vector<Buffer> best;
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      if (attempt == 0) return list[a].bytes > list[b].bytes;
      if (attempt == 1) return lifetime(a) > lifetime(b);
      return list[a].first < list[b].first;
    });
    const int64_t top = place(list, order);
    if (best.empty() || top < plan.activation_bytes) {
      plan.activation_bytes = top;
      best = list;
    }
  }
  if (!best.empty()) list = best;

  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
      const Value value{id, i};
      const TensorType& type = node.outputs[static_cast<size_t>(i)];
      if (node.op == Op::Param || node.op == Op::State) {
        plan.slices[value] = layout.at(node.name);
      } else if (buffers.has(value)) {
        plan.slices[value] = {Arena::Activations, list[buffers.of(value)].offset, type};
      } else {
        Slice slice = plan.slices.at(node.inputs[static_cast<size_t>(aliased_input(node, i))]);
        slice.type = type;
        plan.slices[value] = slice;
      }
    }
  }
  return plan;
}

}  // namespace tandem
