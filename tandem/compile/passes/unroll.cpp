#include "tandem/compile/passes/unroll.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "tandem/base/error.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

bool is_shared(const Node& leaf) { return leaf.op != Op::Input || leaf.name == "scale"; }

// Which nodes of a chunk run in its forward slot. A view of what backward gathers is backward, whatever it
// says.
std::vector<bool> forward_part(const Graph& graph) {
  std::vector<bool> forward;
  for (const Node& node : graph.nodes()) {
    const bool reads_later = std::any_of(node.inputs.begin(), node.inputs.end(), [&](Value input) {
      return !is_leaf(graph.node(input.node).op) && !forward[static_cast<size_t>(input.node)];
    });
    TANDEM_CHECK(node.phase != Phase::Forward || !reads_later || is_view(node.op),
                 "unroll: {} runs in forward and reads what backward makes", op_name(node.op));
    forward.push_back(node.phase == Phase::Forward && !reads_later);
  }
  return forward;
}

class Unroll {
 public:
  Unroll(std::span<const Graph> chunks, int micro_batches) : chunks_(chunks), micro_batches_(micro_batches) {
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      forward_.push_back(forward_part(chunks[chunk]));
      roots_.push_back(find_roots(chunks[chunk]));
      add_leaves(chunk);
    }
    copies_.resize(chunks.size() * static_cast<size_t>(micro_batches));
  }

  void run(const PipelineSlot& slot) {
    const auto chunk = static_cast<size_t>(slot.chunk_on_rank);
    for (int32_t id = 0; id < chunks_[chunk].num_nodes(); ++id) {
      if (is_leaf(chunks_[chunk].node(id).op)) continue;
      if (forward_[chunk][static_cast<size_t>(id)] == slot.forward) copy(chunk, id, slot.micro_batch);
    }
  }

  Graph finish() {
    for (int micro_batch = 0; micro_batch < micro_batches_; ++micro_batch) {
      for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
        for (const GraphOutput& output : chunks_[chunk].outputs())
          graph_.add_output(micro_batch_name(output.name, micro_batch),
                            copied(chunk, micro_batch, output.value));
      }
    }
    return std::move(graph_);
  }

 private:
  // Bytes that copies hand on to each other: a shared leaf, or a view of one.
  struct Root {
    std::string leaf;
    int64_t begin = -1;  // -1: the leaf itself
    std::string shape;   // of the view
    auto operator<=>(const Root&) const = default;
  };
  using Roots = std::map<Value, Root>;

  // The root of every value that shares a root's bytes.
  static Roots find_roots(const Graph& graph) {
    Roots roots;
    for (int32_t id = 0; id < graph.num_nodes(); ++id) {
      const Node& node = graph.node(id);
      if (is_leaf(node.op)) {
        if (is_shared(node)) roots[{id, 0}] = {node.name, -1, {}};
        continue;
      }
      for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) {
        const int alias = aliased_input(node, i);
        if (alias < 0) continue;
        const Value source = node.inputs[static_cast<size_t>(alias)];
        const auto it = roots.find(source);
        if (it == roots.end()) continue;
        if (node.op != Op::View) {
          roots[{id, i}] = it->second;
        } else if (is_leaf(graph.node(source.node).op)) {
          roots[{id, i}] = {it->second.leaf, node.attrs.integer("begin"), node.attrs.text("shape")};
        }
      }
    }
    return roots;
  }

  void add_leaves(size_t chunk) {
    for (const Node& leaf : chunks_[chunk].nodes()) {
      if (!is_leaf(leaf.op)) continue;
      if (is_shared(leaf)) {
        add_leaf(leaf, leaf.name);
        continue;
      }
      for (int i = 0; i < micro_batches_; ++i) add_leaf(leaf, micro_batch_name(leaf.name, i));
    }
  }

  void add_leaf(Node leaf, const std::string& name) {
    const Root root{name, -1, {}};
    if (const auto it = current_.find(root); it != current_.end()) {
      TANDEM_CHECK(graph_.type(it->second) == leaf.outputs[0], "unroll: leaf '{}' has two types", name);
      return;
    }
    leaf.name = name;
    current_[root] = graph_.add(std::move(leaf));
  }

  std::map<Value, Value>& copies(size_t chunk, int micro_batch) {
    return copies_[chunk * static_cast<size_t>(micro_batches_) + static_cast<size_t>(micro_batch)];
  }

  Value copied(size_t chunk, int micro_batch, Value value) {
    const std::map<Value, Value>& map = copies(chunk, micro_batch);
    const auto it = map.find(value);
    TANDEM_CHECK(it != map.end(), "unroll: chunk {} needs %{} of micro-batch {} before its slot has run",
                 chunk, value.node, micro_batch);
    return it->second;
  }

  // What the bytes of a leaf hold now.
  Value leaf_now(const Node& leaf, int micro_batch) {
    if (!is_shared(leaf)) return current_.at({micro_batch_name(leaf.name, micro_batch), -1, {}});
    Value& value = current_.at({leaf.name, -1, {}});
    if (graph_.type(value).shape != leaf.outputs[0].shape) {
      const Attrs attrs{{"shape", shape_attr(leaf.outputs[0].shape)}};
      const Node& writer = graph_.node(value.node);
      value = append(graph_, Op::Reshape, {value}, attrs, writer.block, writer.phase);
    }
    return value;
  }

  void copy(size_t chunk, int32_t id, int micro_batch) {
    const Graph& graph = chunks_[chunk];
    std::map<Value, Value>& map = copies(chunk, micro_batch);
    Node node = graph.node(id);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      Value& input = node.inputs[i];
      const Node& source = graph.node(input.node);
      if (is_leaf(source.op)) {
        input = leaf_now(source, micro_batch);
        continue;
      }
      const auto root = roots_[chunk].find(input);
      input = copied(chunk, micro_batch, input);
      if (root == roots_[chunk].end() || root->second.begin >= 0 || !updates(graph.node(id), i)) continue;
      // Another micro-batch may have added to it since this one's forward.
      const Value now = current_.at(root->second);
      if (now.node > input.node) input = viewed(now, graph_.type(input).shape);
    }
    const auto root = roots_[chunk].find({id, 0});
    if (node.op == Op::View && root != roots_[chunk].end()) {
      // A view that somebody has written since the whole was last put together: go on from there.
      const auto it = current_.find(root->second);
      if (it != current_.end() && it->second.node > node.inputs[0].node) {
        map[{id, 0}] = viewed(it->second, graph.type({id, 0}).shape);
        return;
      }
    }
    const Op op = node.op;
    const auto num_outputs = static_cast<int32_t>(node.outputs.size());
    const int32_t made = graph_.add(std::move(node)).node;
    for (int32_t i = 0; i < num_outputs; ++i) {
      map[{id, i}] = {made, i};
      const auto at = roots_[chunk].find({id, i});
      const bool writes = op != Op::Reshape && op != Op::Send;
      if (at != roots_[chunk].end() && writes) current_[at->second] = {made, i};
    }
  }

  // Whether an op overwrites its input i with a later value of it.
  static bool updates(const Node& node, size_t i) {
    if (is_view(node.op) || node.op == Op::Send) return false;
    for (int output = 0; output < static_cast<int>(node.outputs.size()); ++output) {
      if (aliased_input(node, output) == static_cast<int>(i)) return true;
    }
    return false;
  }

  Value viewed(Value value, const Shape& shape) {
    if (graph_.type(value).shape == shape) return value;
    const Node& writer = graph_.node(value.node);
    return append(graph_, Op::Reshape, {value}, {{"shape", shape_attr(shape)}}, writer.block, writer.phase);
  }

  std::span<const Graph> chunks_;
  int micro_batches_;
  Graph graph_;
  std::vector<std::vector<bool>> forward_;  // by chunk and node
  std::vector<Roots> roots_;                // by chunk
  std::map<Root, Value> current_;           // the value that a root's bytes hold now
  std::vector<std::map<Value, Value>>
      copies_;  // by chunk and micro-batch: values of the chunk's graph -> here
};

}  // namespace

std::string micro_batch_name(std::string_view name, int micro_batch) {
  return fmt::format("{}.{}", name, micro_batch);
}

Graph unroll(std::span<const Graph> chunks, std::span<const PipelineSlot> order, int micro_batches) {
  Unroll unrolled(chunks, micro_batches);
  for (const PipelineSlot& slot : order) unrolled.run(slot);
  return unrolled.finish();
}

}  // namespace tandem
