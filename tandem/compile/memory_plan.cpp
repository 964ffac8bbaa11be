#include "tandem/compile/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "tandem/base/error.h"
#include "tandem/compile/first_fit.h"
#include "tandem/compile/pipeline_order.h"

namespace tandem {
namespace {

int64_t align(int64_t bytes) { return (bytes + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment; }

Arena leaf_arena(const Node& node) {
  if (node.op == Op::Param) return Arena::Weights;
  const std::string& category = node.attrs.text("category");
  for (Arena arena :
       {Arena::Weights, Arena::Master, Arena::Gradients, Arena::Optimizer, Arena::Cache, Arena::Host}) {
    if (arena_name(arena) == category) return arena;
  }
  TANDEM_CHECK(false, "state '{}' has category '{}'", node.name, category);
  return Arena::Weights;
}

constexpr Arena kRunArenas[] = {Arena::Activations, Arena::Communication, Arena::Host};

// Where the output of a node lives that shares nobody's bytes.
Arena made_in(const Node& node) {
  switch (node.op) {
    case Op::Zeros:
    case Op::Recv: return Arena::Communication;
    case Op::AllGather:
    case Op::ReduceScatter:
      return node.attrs.text("axis") == axis_name(Axis::Data) ? Arena::Communication : Arena::Activations;
    case Op::Copy: return node.attrs.text("to") == "host" ? Arena::Host : Arena::Communication;
    case Op::MuonDirection:
      return node.attrs.text_or("to", "device") == "host" ? Arena::Host : Arena::Activations;
    default: return Arena::Activations;
  }
}

struct Buffer {
  int64_t bytes = 0;
  int32_t first = 0;  // alive from node `first` to node `last`, both included
  int32_t last = 0;
  int64_t offset = 0;
  Arena arena = Arena::Activations;
  bool fixed = false;  // where an earlier graph has placed it
};

// In the given order; returns the bytes that they take.
int64_t place(std::vector<Buffer>& buffers, const std::vector<size_t>& order) {
  FirstFit arena;
  for (size_t index : order) {
    Buffer& buffer = buffers[index];
    const Lifetime lifetime{buffer.first, buffer.last};
    if (!buffer.fixed) buffer.offset = arena.find(buffer.bytes, lifetime);
    arena.put(buffer.offset, buffer.bytes, lifetime);
  }
  return arena.top();
}

// Groups values into buffers and finds how long each lives.
class Buffers {
 public:
  Buffers(const Graph& graph, const PersistentLayout& layout) : graph_(graph), layout_(layout) {
    find_reads();
    for (int32_t id = 0; id < graph.num_nodes(); ++id) add_outputs(id);
  }
  std::vector<Buffer>& list() { return buffers_; }
  bool has(Value value) const { return buffer_of_.contains(value); }
  size_t of(Value value) const { return buffer_of_.at(value); }

 private:
  void find_reads() {
    // A command beside the computation may still run when the nodes after it do.
    std::map<std::pair<int32_t, Op>, std::pair<int32_t, int32_t>> next;  // by stream and op: the next two
    std::vector<int32_t> done(static_cast<size_t>(graph_.num_nodes()));
    for (int32_t id = graph_.num_nodes() - 1; id >= 0; --id) {
      const int32_t stream = stream_of(graph_.node(id));
      done[static_cast<size_t>(id)] = id;
      if (stream == kComputeStream) continue;
      const std::pair last{graph_.num_nodes(), graph_.num_nodes()};
      auto& [first, second] = next.try_emplace({stream, graph_.node(id).op}, last).first->second;
      static_assert(kSendsUnderWay == 2);
      done[static_cast<size_t>(id)] = stream == kSendStream ? second : first;
      second = first;
      first = id;
    }
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      for (Value input : graph_.node(id).inputs) {
        first_read_.try_emplace(input, id);
        last_read_[input] = std::max(last_read_[input], done[static_cast<size_t>(id)]);
      }
    }
    for (const GraphOutput& output : graph_.outputs()) last_read_[output.value] = graph_.num_nodes();
  }

  void add_outputs(int32_t id) {
    const Node& node = graph_.node(id);
    if (is_transient(node)) return add_transient(id);
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
            buffers_[of(source)].arena == Arena::Activations &&
            buffers_[of(source)].bytes == align(node.outputs[static_cast<size_t>(i)].bytes())) {
          join(value, of(source), last);
          continue;
        }
      }
      buffer_of_[value] = buffers_.size();
      // Inputs are written before the first node runs.
      buffers_.push_back({align(node.outputs[static_cast<size_t>(i)].bytes()), node.op == Op::Input ? 0 : id,
                          last, 0, made_in(node)});
    }
  }

  // To the end of this graph: the update reads it after the pass.
  void add_transient(int32_t id) {
    const Node& leaf = graph_.node(id);
    const bool placed = layout_.is_placed(leaf.name);
    const int32_t first = placed ? 0 : first_read_.at({id, 0});
    const Node& writer = graph_.node(first);
    const bool overwrites =
        writer.op == Op::Zeros || writer.op == Op::View || writer.attrs.integer_or("fresh", 0) != 0;
    TANDEM_CHECK(placed || overwrites, "{} does not overwrite '{}'", op_name(writer.op), leaf.name);
    buffer_of_[{id, 0}] = buffers_.size();
    buffers_.push_back({align(leaf.outputs[0].bytes()), first, graph_.num_nodes(),
                        placed ? layout_.at(leaf.name).offset : 0, Arena::Activations, placed});
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
  const PersistentLayout& layout_;
  std::map<Value, int32_t> first_read_;
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
    Slice slice{Arena::Activations, -1, node.outputs[0]};
    if (!is_transient(node)) {
      slice.arena = leaf_arena(node);
      int64_t& size = sizes_[static_cast<size_t>(slice.arena)];
      slice.offset = size;
      size += align(slice.type.bytes());
    }
    index_[node.name] = items_.size();
    const Shape& shape = node.outputs[0].shape;
    items_.push_back(
        {node.name, slice, {{node.name, shape, whole_box(shape), 0, node.attrs.text("init"), true}}});
  }
}

void PersistentLayout::place(const std::string& name, int64_t offset) {
  TANDEM_CHECK(!is_placed(name), "leaf '{}' has a place", name);
  items_[index_.at(name)].slice.offset = offset;
}

const Slice& PersistentLayout::at(const std::string& name) const { return items_[index_.at(name)].slice; }

int32_t stream_of(const Node& node) {
  if (node.op == Op::Copy) return kCopyStream;
  if (node.op == Op::Send) return kSendStream;
  if (!is_collective(node.op) || node.attrs.text("axis") != axis_name(Axis::Data)) return kComputeStream;
  return kDataStream;
}

namespace {

// No single order of placement is best for every graph; they are cheap, so the smallest result wins.
int64_t place_best(std::vector<Buffer>& list, Arena arena) {
  std::vector<size_t> order;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].arena == arena) order.push_back(i);
  }
  const auto lifetime = [&](size_t i) { return list[i].last - list[i].first; };
  std::vector<Buffer> best;
  int64_t least = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      if (list[a].fixed != list[b].fixed) return list[a].fixed;
      if (attempt == 0) return list[a].bytes > list[b].bytes;
      if (attempt == 1) return lifetime(a) > lifetime(b);
      return list[a].first < list[b].first;
    });
    const int64_t top = place(list, order);
    if (!best.empty() && top >= least) continue;
    least = top;
    best = list;
  }
  list = best;
  return least;
}

// Of activations, at each node.
std::vector<int64_t> live_bytes(const std::vector<Buffer>& list, int32_t num_nodes) {
  // What each adds to the one before; a buffer may live until after the last.
  std::vector<int64_t> bytes(static_cast<size_t>(num_nodes) + 2);
  for (const Buffer& b : list) {
    if (b.arena != Arena::Activations) continue;
    bytes[static_cast<size_t>(b.first)] += b.bytes;
    bytes[static_cast<size_t>(b.last) + 1] -= b.bytes;
  }
  bytes.resize(static_cast<size_t>(num_nodes));
  std::partial_sum(bytes.begin(), bytes.end(), bytes.begin());
  return bytes;
}

}  // namespace

MemoryPlan plan_memory(const Graph& graph, PersistentLayout& layout) {
  Buffers buffers(graph, layout);
  std::vector<Buffer>& list = buffers.list();

  MemoryPlan plan;
  plan.live_bytes = live_bytes(list, graph.num_nodes());
  for (int64_t bytes : plan.live_bytes) plan.lower_bound = std::max(plan.lower_bound, bytes);
  for (Arena arena : kRunArenas) plan.sizes[static_cast<size_t>(arena)] = place_best(list, arena);

  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    if (is_transient(node) && !layout.is_placed(node.name))
      layout.place(node.name, list[buffers.of({id, 0})].offset);
  }

  // The host arena begins with what lives there from step to step.
  const int64_t host_base = layout.sizes()[static_cast<size_t>(Arena::Host)];
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
      const Value value{id, i};
      const TensorType& type = node.outputs[static_cast<size_t>(i)];
      if (node.op == Op::Param || node.op == Op::State) {
        plan.slices[value] = layout.at(node.name);
      } else if (const int shared = aliased_input(node, i); shared >= 0) {
        Slice slice = plan.slices.at(node.inputs[static_cast<size_t>(shared)]);
        slice.offset += aliased_offset(node);
        slice.type = type;
        plan.slices[value] = slice;
      } else {
        const Buffer& buffer = list[buffers.of(value)];
        const int64_t base = buffer.arena == Arena::Host ? host_base : 0;
        plan.slices[value] = {buffer.arena, base + buffer.offset, type};
      }
    }
  }
  return plan;
}

}  // namespace tandem
