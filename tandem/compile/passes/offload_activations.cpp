#include "tandem/compile/passes/offload_activations.h"

#include <algorithm>
#include <vector>

#include "tandem/compile/memory_plan.h"
#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

// Values of less than this part of the largest one's bytes are not worth a copy.
constexpr int64_t kWorthACopy = 32;

// A value that waits on the host, and before which node it is fetched.
struct Waiting {
  Value value;
  int64_t bytes = 0;
  int32_t block = kNoBlock;  // whose backward reads it first
  int32_t fetched_before = 0;
};

class Offload {
 public:
  Offload(const Graph& graph, int64_t most_bytes) : graph_(graph), readers_(readers(graph)), rewrite_(graph) {
    find_blocks();
    choose(most_bytes);
  }

  Graph run() {
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      if (const auto it = fetched_before_.find(id); it != fetched_before_.end()) {
        for (const Waiting& each : it->second) fetch(each);
      }
      rewrite_.copy(id);
      for (int32_t i = 0; i < static_cast<int32_t>(graph_.node(id).outputs.size()); ++i) {
        if (const Value value{id, i}; chosen_.contains(value)) send(value);
      }
    }
    return rewrite_.finish();
  }

 private:
  bool is_backward(int32_t id) const { return graph_.node(id).phase != Phase::Forward; }

  void find_blocks() {
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      const Node& node = graph_.node(id);
      if (node.block == kNoBlock || is_leaf(node.op)) continue;
      last_block_ = std::max(last_block_, node.block);
      if (node.phase == Phase::Backward) backward_of_.try_emplace(node.block, id);
    }
  }

  // Whether its bytes belong to something that stays: to a leaf, or to a view or a later op that reads on in
  // them. What an op made by writing over its input is a value of its own.
  bool shares_bytes(Value value) const {
    if (is_leaf(graph_.node(storage_of(graph_, value).node).op)) return true;
    const std::vector<int32_t>& all = readers_.at(value);
    return std::any_of(all.begin(), all.end(), [&](int32_t reader) {
      const Node& node = graph_.node(reader);
      for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) {
        const int shared = aliased_input(node, i);
        if (shared >= 0 && node.inputs[static_cast<size_t>(shared)] == value) return true;
      }
      return false;
    });
  }

  void consider(Value value, std::vector<Waiting>& found) const {
    const auto it = readers_.find(value);
    if (it == readers_.end() || shares_bytes(value)) return;
    const auto first = std::find_if(it->second.begin(), it->second.end(),
                                    [&](int32_t reader) { return is_backward(reader); });
    if (first == it->second.end()) return;
    // Of all that read it, the one whose turn comes first: backward runs from the last block to the first.
    int32_t block = -1;
    for (auto reader = first; reader != it->second.end(); ++reader) {
      const int32_t of = graph_.node(*reader).block;
      if (of == kNoBlock) return;  // the head's, which begins backward
      block = std::max(block, of);
    }
    const auto ahead = backward_of_.find(block + 1);
    if (block >= last_block_ || ahead == backward_of_.end()) return;
    found.push_back({value, graph_.type(value).bytes(), block, std::min(ahead->second, *first)});
  }

  void choose(int64_t most_bytes) {
    std::vector<Waiting> found;
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      const Node& node = graph_.node(id);
      if (is_leaf(node.op) || is_view(node.op) || is_backward(id) || stream_of(node) != kComputeStream)
        continue;
      for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) consider({id, i}, found);
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Waiting& a, const Waiting& b) { return a.block < b.block; });
    int64_t largest = 0, bytes = 0;
    for (const Waiting& each : found) largest = std::max(largest, each.bytes);
    for (const Waiting& each : found) {
      if (each.bytes < largest / kWorthACopy || each.bytes > most_bytes - bytes) continue;
      bytes += each.bytes;
      chosen_.insert(each.value);
      fetched_before_[each.fetched_before].push_back(each);
    }
  }

  void send(Value value) {
    const Node& node = graph_.node(value.node);
    on_host_[value] = append(rewrite_.graph(), Op::Copy, {rewrite_.at(value)}, {{"to", "host"}}, node.block,
                             Phase::Forward);
  }

  // What comes after reads what came back.
  void fetch(const Waiting& waiting) {
    rewrite_.set(waiting.value, append(rewrite_.graph(), Op::Copy, {on_host_.at(waiting.value)},
                                       {{"to", "device"}}, waiting.block, Phase::Backward));
  }

  const Graph& graph_;
  const std::map<Value, std::vector<int32_t>> readers_;
  Rewrite rewrite_;
  int32_t last_block_ = kNoBlock;
  std::map<int32_t, int32_t> backward_of_;  // block -> the first node of its backward
  std::set<Value> chosen_;
  std::map<int32_t, std::vector<Waiting>> fetched_before_;
  std::map<Value, Value> on_host_;
};

}  // namespace

Graph offload_activations(const Graph& graph, int64_t most_bytes) { return Offload(graph, most_bytes).run(); }

}  // namespace tandem
