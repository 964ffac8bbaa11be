#include "tandem/compile/passes/recompute.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/compile/cost.h"
#include "tandem/compile/rewrite.h"
#include "tandem/config/enum_names.h"
#include "tandem/ir/infer.h"
#include "tandem/ir/op_table.h"

namespace tandem {
namespace {

bool block_chosen(int32_t block, const Recompute& choice) {
  if (block == kNoBlock) return false;
  switch (choice.kind) {
    case RecomputeKind::None: return false;
    case RecomputeKind::Full:
    case RecomputeKind::AllButAttention:
    case RecomputeKind::Selective: return true;
    case RecomputeKind::Every: return block % choice.every == 0;
    case RecomputeKind::Auto: break;
  }
  TANDEM_CHECK(false, "recompute: auto is resolved before the pass runs");
  return false;
}

// Whether it is made again whatever that costs.
bool makes_again(const Node& node, const Recompute& choice) {
  if (choice.kind == RecomputeKind::AllButAttention && node.op == Op::Attention) return false;
  return choice.kind != RecomputeKind::Selective && block_chosen(node.block, choice);
}

bool has_side_effect(const Graph& graph, const Node& node) {
  for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) {
    const int input = aliased_input(node, i);
    if (input >= 0 && is_leaf(graph.node(node.inputs[static_cast<size_t>(input)].node).op)) return true;
  }
  return false;
}

// FLOPs of the blocks' forward.
struct Work {
  double all = 0, attention = 0;
};
Work work_of_blocks(const Graph& forward) {
  Work work;
  for (const Node& node : forward.nodes()) {
    if (node.block == kNoBlock || is_leaf(node.op)) continue;
    const auto flops = static_cast<double>(node_cost(node, input_types(forward, node)).flops);
    work.all += flops;
    if (node.op == Op::Attention) work.attention += flops;
  }
  return work;
}

}  // namespace

int32_t num_blocks(const Graph& graph) {
  int32_t count = 0;
  for (const Node& node : graph.nodes()) count = std::max(count, node.block + 1);
  return count;
}

std::set<int32_t> dropped_nodes(const Graph& graph, const Recompute& choice, GeluAgain gelu) {
  const auto reader_map = readers(graph);
  std::set<int32_t> dropped;
  // Where backward reads no more of a norm than its statistics, there is nothing to gain.
  const auto read_again = [&](Value value) {
    const auto it = reader_map.find(value);
    return it != reader_map.end() && std::any_of(it->second.begin(), it->second.end(), [&](int32_t reader) {
             return graph.node(reader).phase != Phase::Forward || dropped.contains(reader);
           });
  };
  const auto is_chosen = [&](int32_t id) {
    const Node& node = graph.node(id);
    if (node.op == Op::Gelu && gelu == GeluAgain::Always) return node.block != kNoBlock;
    if (makes_again(node, choice)) return true;
    const bool kept = node.op == Op::Gelu && gelu == GeluAgain::WithProduct;
    return block_chosen(node.block, choice) && op_info(node.op).remake == Remake::Cheap && !kept &&
           read_again({id, 0});
  };
  for (int32_t id = graph.num_nodes() - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    if (is_leaf(node.op) || node.phase != Phase::Forward || !is_chosen(id)) continue;
    if (has_side_effect(graph, node) || op_info(node.op).remake == Remake::Never) continue;
    bool leaves_block = false;  // another block's forward reads it: it is kept as that block's input
    for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
      const auto it = reader_map.find({id, i});
      if (it == reader_map.end()) continue;
      for (int32_t reader : it->second) {
        const Node& other = graph.node(reader);
        leaves_block = leaves_block || (other.phase == Phase::Forward && other.block != node.block) ||
                       other.op == Op::CrossEntropyGrad || other.op == Op::VocabLossGrad;
      }
    }
    if (!leaves_block) dropped.insert(id);
  }
  return dropped;
}

Graph recompute(const Graph& graph, const Recompute& choice, GeluAgain gelu) {
  const std::set<int32_t> dropped = dropped_nodes(graph, choice, gelu);
  Rewrite rewrite(graph);
  std::map<Value, Value> again;  // dropped value -> its second making

  // Makes a dropped value again, from kept values or from other dropped ones.
  const auto make_again = [&](auto& self, Value value) -> Value {
    if (!dropped.contains(value.node)) return rewrite.at(value);
    if (const auto it = again.find(value); it != again.end()) return it->second;
    Node node = graph.node(value.node);
    for (Value& input : node.inputs) input = self(self, input);
    node.phase = Phase::Recompute;
    const auto num_outputs = static_cast<int32_t>(node.outputs.size());
    const int32_t id = rewrite.graph().add(std::move(node)).node;
    for (int32_t i = 0; i < num_outputs; ++i) again[{value.node, i}] = {id, i};
    return {id, value.index};
  };

  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    Node node = graph.node(id);
    if (node.phase == Phase::Forward || is_leaf(node.op)) {
      rewrite.copy(id);
      continue;
    }
    for (Value& input : node.inputs) input = make_again(make_again, input);
    const auto num_outputs = static_cast<int32_t>(node.outputs.size());
    const int32_t made = rewrite.graph().add(std::move(node)).node;
    for (int32_t i = 0; i < num_outputs; ++i) rewrite.set({id, i}, {made, i});
  }
  return rewrite.finish();
}

std::vector<Recompute> recompute_candidates(const Graph& forward) {
  const int32_t blocks = num_blocks(forward);
  const Work work = work_of_blocks(forward);
  std::vector<Recompute> candidates = {{RecomputeKind::None, 0}, {RecomputeKind::Selective, 0}};
  int32_t last = 0;  // every:K makes ceil(blocks / K) blocks again: one K for each such number will do
  for (int32_t k = blocks; k >= 2; --k) {
    const int32_t chosen = (blocks + k - 1) / k;
    const bool dearer = work.all * chosen > (work.all - work.attention) * blocks;
    if (chosen != last && !dearer) candidates.push_back({RecomputeKind::Every, k});
    last = chosen;
  }
  candidates.push_back({RecomputeKind::AllButAttention, 0});
  candidates.push_back({RecomputeKind::Full, 0});
  return candidates;
}

std::string recompute_name(const Recompute& choice) {
  if (choice.kind == RecomputeKind::Every) return fmt::format("every:{}", choice.every);
  return std::string(name_of(choice.kind));
}

}  // namespace tandem
