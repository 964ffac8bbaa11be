#include "tandem/compile/passes/norms/fuse_norm.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

class NormFusion {
 public:
  explicit NormFusion(const Graph& graph) : graph_(graph), readers_(readers(graph)), rewrite_(graph) {
    for (const GraphOutput& output : graph.outputs()) pinned_.insert(output.value);
  }

  Graph run() {
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      if (graph_.node(id).op == Op::Relu) match_forward(id);
      if (graph_.node(id).op == Op::ReluGrad) match_gradient(id);
    }
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) rewrite_.copy_leaf(id);
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      if (is_leaf(graph_.node(id).op) || swallowed_.contains(id)) continue;
      if (const auto forward = forward_at_.find(id); forward != forward_at_.end()) {
        emit_forward(id, forward->second);
      } else if (const auto relu = relu_of_.find(id); relu != relu_of_.end()) {
        emit_gradient(id, relu->second);
      } else {
        rewrite_.copy(id);
      }
    }
    return rewrite_.finish();
  }

 private:
  // A norm that its ReLU takes over; the node between them, if there is one, adds the residual.
  struct Forward {
    int32_t norm;
    std::optional<int32_t> add;
    Value residual;
  };

  static bool is_norm(const Node& node) { return node.op == Op::BatchNorm || node.op == Op::BatchNormInfer; }

  bool only_reader(Value value, int32_t reader) const {
    const auto found = readers_.find(value);
    return found != readers_.end() && found->second == std::vector<int32_t>{reader} &&
           !pinned_.contains(value);
  }

  // The norm whose output, which nobody else needs, is this value that `reader` reads.
  std::optional<int32_t> norm_behind(Value value, int32_t reader) const {
    const Node& node = graph_.node(value.node);
    const bool plain = is_norm(node) && value.index == 0 && node.attrs.integer_or("relu", 0) == 0 &&
                       node.phase == graph_.node(reader).phase;
    if (!plain || !only_reader(value, reader)) return std::nullopt;
    return value.node;
  }

  // Whether the norm may run as late as `at`: nobody needs its other outputs before.
  bool can_wait(int32_t norm, int32_t at) const {
    for (int32_t i = 1; i < static_cast<int32_t>(graph_.node(norm).outputs.size()); ++i) {
      const auto found = readers_.find({norm, i});
      if (found != readers_.end() && found->second.front() < at) return false;
    }
    return true;
  }

  void match_forward(int32_t relu) {
    const Value x = graph_.node(relu).inputs[0];
    std::optional<Forward> found;
    if (const auto norm = norm_behind(x, relu)) {
      found = Forward{*norm, std::nullopt, {}};
    } else if (graph_.node(x.node).op == Op::Add && only_reader(x, relu)) {
      const Node& add = graph_.node(x.node);
      // Sums of two norms: the later one, which the other is there for, takes the ReLU.
      for (const size_t side : {size_t{1}, size_t{0}}) {
        const auto behind = norm_behind(add.inputs[side], x.node);
        if (!behind || add.phase != graph_.node(relu).phase || add.inputs[0] == add.inputs[1]) continue;
        if (found && found->norm > *behind) continue;
        found = Forward{*behind, x.node, add.inputs[1 - side]};
      }
    }
    if (!found || !can_wait(found->norm, relu)) return;
    forward_at_[relu] = *found;
    swallowed_.insert(found->norm);
    if (found->add) swallowed_.insert(*found->add);
  }

  void emit_forward(int32_t relu, const Forward& match) {
    const Node& norm = graph_.node(match.norm);
    std::vector<Value> inputs;
    for (Value input : norm.inputs) inputs.push_back(rewrite_.at(input));
    if (match.add) inputs.push_back(rewrite_.at(match.residual));
    Attrs attrs = norm.attrs;
    attrs.set("relu", int64_t{1});
    const Value made =
        append(rewrite_.graph(), norm.op, inputs, std::move(attrs), norm.block, graph_.node(relu).phase);
    rewrite_.set({relu, 0}, made);
    for (int32_t i = 1; i < static_cast<int32_t>(norm.outputs.size()); ++i)
      rewrite_.set({match.norm, i}, {made.node, i});
  }

  // The one norm's gradient that reads this gradient of a ReLU, which was that norm's very own.
  void match_gradient(int32_t slope) {
    const Node& node = graph_.node(slope);
    const auto found = readers_.find({slope, 0});
    if (found == readers_.end() || found->second.size() != 1 || pinned_.contains({slope, 0})) return;
    const int32_t gradient = found->second.front();
    const Node& norm_grad = graph_.node(gradient);
    if (norm_grad.op != Op::BatchNormGrad || norm_grad.inputs[0] != Value{slope, 0}) return;
    const auto forward = forward_at_.find(node.inputs[1].node);
    if (forward == forward_at_.end() || forward->second.add) return;
    const int32_t norm = forward->second.norm;
    const Node& made = graph_.node(norm);
    const bool same = norm_grad.inputs[1] == made.inputs[0] && norm_grad.inputs[2] == made.inputs[1] &&
                      norm_grad.inputs[3] == Value{norm, 1} && norm_grad.inputs[4] == Value{norm, 2};
    if (!same) return;
    relu_of_[gradient] = slope;
    swallowed_.insert(slope);
  }

  void emit_gradient(int32_t gradient, int32_t slope) {
    const Node& node = graph_.node(gradient);
    const Node& norm = graph_.node(node.inputs[3].node);
    std::vector<Value> inputs = {rewrite_.at(graph_.node(slope).inputs[0])};
    for (size_t i = 1; i < node.inputs.size(); ++i) inputs.push_back(rewrite_.at(node.inputs[i]));
    inputs.push_back(rewrite_.at(norm.inputs[2]));
    Attrs attrs = node.attrs;
    attrs.set("relu", int64_t{1});
    const Value made = append(rewrite_.graph(), node.op, inputs, std::move(attrs), node.block, node.phase);
    for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i)
      rewrite_.set({gradient, i}, {made.node, i});
  }

  const Graph& graph_;
  const std::map<Value, std::vector<int32_t>> readers_;
  Rewrite rewrite_;
  std::set<Value> pinned_;
  std::set<int32_t> swallowed_;
  std::map<int32_t, Forward> forward_at_;  // by the ReLU
  std::map<int32_t, int32_t> relu_of_;     // by the norm's gradient
};

}  // namespace

Graph fuse_norms(const Graph& graph) { return NormFusion(graph).run(); }

}  // namespace tandem
