#include "tandem/compile/passes/remake_outputs.h"

#include <optional>
#include <set>

#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

class RemakeOutputs {
 public:
  explicit RemakeOutputs(const Graph& graph) : graph_(graph), readers_(readers(graph)), rewrite_(graph) {}

  Graph run() {
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) match(id);
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      if (moved_.contains(id)) continue;
      if (const auto found = givers_.find(id); found != givers_.end()) {
        emit(id, found->second);
      } else {
        rewrite_.copy(id);
      }
    }
    return rewrite_.finish();
  }

 private:
  // What a gradient op is to give again, and the nodes that wait for it.
  struct Gift {
    int32_t forward;
    std::vector<int32_t> products;
  };

  void match(int32_t forward) {
    const Node& node = graph_.node(forward);
    const bool norm = node.op == Op::LayerNorm || node.op == Op::RmsNorm;
    if ((!norm && node.op != Op::Swiglu && node.op != Op::Geglu) || node.phase != Phase::Forward) return;
    if (node.block == kNoBlock) return;
    const auto giver = find_giver(norm ? Value{forward, 1} : node.inputs[0]);
    if (!giver) return;
    Gift gift{forward, {}};
    for (int32_t reader : readers_of({forward, 0})) {
      if (graph_.node(reader).phase == Phase::Forward) continue;
      if (!can_wait(reader, *giver)) return;
      gift.products.push_back(reader);
    }
    if (gift.products.empty()) return;
    moved_.insert(gift.products.begin(), gift.products.end());
    givers_[*giver] = std::move(gift);
  }

  std::vector<int32_t> readers_of(Value value) const {
    const auto it = readers_.find(value);
    return it == readers_.end() ? std::vector<int32_t>{} : it->second;
  }

  // The gradient op that reads a norm's statistics, or SwiGLU's input.
  std::optional<int32_t> find_giver(Value source) const {
    for (int32_t reader : readers_of(source)) {
      const Op op = graph_.node(reader).op;
      const bool gives =
          op == Op::LayerNormGrad || op == Op::RmsNormGrad || op == Op::SwigluGrad || op == Op::GegluGrad;
      if (gives && !givers_.contains(reader)) return reader;
    }
    return std::nullopt;
  }

  // Whether a product may run after `giver`: nobody needs its result before, or overwrites what it reads.
  bool can_wait(int32_t product, int32_t giver) const {
    if (graph_.node(product).op != Op::MatmulAcc || product > giver) return false;
    std::set<Value> touched;
    for (Value input : graph_.node(product).inputs) touched.insert(storage_of(graph_, input));
    for (int32_t id = product + 1; id <= giver; ++id) {
      const Node& node = graph_.node(id);
      for (Value input : node.inputs) {
        if (input.node == product) return false;
      }
      for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) {
        const int shared = node.op == Op::Reshape ? -1 : aliased_input(node, i);
        if (shared >= 0 && touched.contains(storage_of(graph_, node.inputs[static_cast<size_t>(shared)])))
          return false;
      }
    }
    return true;
  }

  void emit(int32_t id, const Gift& gift) {
    const Node& node = graph_.node(id);
    const auto count = static_cast<int32_t>(node.outputs.size());
    std::vector<Value> inputs = mapped(node.inputs);
    if (node.op == Op::LayerNormGrad) inputs.push_back(rewrite_.at(graph_.node(gift.forward).inputs[2]));
    Attrs attrs = node.attrs;
    attrs.set("again", int64_t{1});
    const Value made = append(rewrite_.graph(), node.op, inputs, std::move(attrs), node.block, node.phase);
    for (int32_t i = 0; i < count; ++i) rewrite_.set({id, i}, {made.node, i});
    rewrite_.set({gift.forward, 0}, {made.node, count});  // for all that still reads it
    for (int32_t product : gift.products) rewrite_.copy(product);
  }

  std::vector<Value> mapped(std::vector<Value> values) const {
    for (Value& value : values) value = rewrite_.at(value);
    return values;
  }

  const Graph& graph_;
  const std::map<Value, std::vector<int32_t>> readers_;
  Rewrite rewrite_;
  std::map<int32_t, Gift> givers_;  // by gradient op
  std::set<int32_t> moved_;
};

}  // namespace

Graph remake_outputs(const Graph& graph) { return RemakeOutputs(graph).run(); }

}  // namespace tandem
