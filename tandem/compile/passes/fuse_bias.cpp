#include "tandem/compile/passes/fuse_bias.h"

#include <map>
#include <optional>
#include <set>

#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

class BiasFusion {
 public:
  BiasFusion(const Graph& graph, const FuseOptions& options)
      : graph_(graph), options_(options), readers_(readers(graph)), rewrite_(graph) {}

  Graph run() {
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      if (graph_.node(id).op != Op::BiasGrad) continue;
      if (const auto host = find_host(id)) {
        bias_of_[*host] = id;
        swallowed_.insert(id);
      }
    }
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) rewrite_.copy_leaf(id);
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      if (is_leaf(graph_.node(id).op) || swallowed_.contains(id)) continue;
      if (const auto found = bias_of_.find(id); found != bias_of_.end()) {
        emit_with_bias(id, found->second);
      } else {
        rewrite_.copy(id);
      }
    }
    return rewrite_.finish();
  }

 private:
  bool alike(int32_t a, int32_t b) const {  // both add to their accumulators, or both overwrite them
    return graph_.node(a).attrs.integer_or("fresh", 0) == graph_.node(b).attrs.integer_or("fresh", 0);
  }

  // Whether the node that makes dy, with its first output, can make its column sums.
  bool sums_columns(int32_t id, int32_t bias) const {
    const Node& node = graph_.node(id);
    switch (node.op) {
      case Op::LayerNormGrad:
      case Op::RmsNormGrad: return alike(id, bias);
      case Op::AttentionGrad:
        return options_.attention_sums != nullptr &&
               options_.attention_sums(graph_.type(node.inputs[1]), node.attrs);
      default: return false;
    }
  }

  // The node that is to make the sums of this bias's gradient.
  std::optional<int32_t> find_host(int32_t bias) const {
    const Value dy = graph_.node(bias).inputs[1];
    if (!is_leaf(graph_.node(graph_.node(bias).inputs[0].node).op)) return std::nullopt;
    const bool near = options_.sums_across_blocks || graph_.node(dy.node).block == graph_.node(bias).block;
    if (near && dy.index == 0 && sums_columns(dy.node, bias) && !bias_of_.contains(dy.node)) return dy.node;
    for (int32_t reader : readers_.at(dy)) {
      const Node& product = graph_.node(reader);
      const bool same_rows = product.op == Op::MatmulAcc && reader > bias && product.inputs[1] == dy &&
                             product.attrs.integer("trans_a") == 1 && product.attrs.integer("trans_b") == 0;
      if (same_rows && alike(reader, bias) && !bias_of_.contains(reader)) return reader;
    }
    return std::nullopt;
  }

  void emit_with_bias(int32_t host, int32_t bias) {
    const Node& node = graph_.node(host);
    const bool product = node.op == Op::MatmulAcc;
    std::vector<Value> inputs;
    for (Value value : node.inputs) inputs.push_back(rewrite_.at(value));
    const Value accumulator = rewrite_.at(graph_.node(bias).inputs[0]);
    inputs.insert(product ? inputs.begin() + 1 : inputs.end(), accumulator);
    Attrs attrs = node.attrs;
    if (!product) attrs.set("sums", int64_t{1});
    if (graph_.node(bias).attrs.has("fresh")) attrs.set("fresh", int64_t{1});
    const Value made = append(rewrite_.graph(), product ? Op::MatmulBiasAcc : node.op, inputs,
                              std::move(attrs), node.block, node.phase);
    const auto count = static_cast<int32_t>(node.outputs.size());
    for (int32_t i = 0; i < count; ++i) rewrite_.set({host, i}, {made.node, i});
    rewrite_.set({bias, 0}, {made.node, count});
  }

  const Graph& graph_;
  const FuseOptions& options_;
  const std::map<Value, std::vector<int32_t>> readers_;
  Rewrite rewrite_;
  std::map<int32_t, int32_t> bias_of_;  // by the node that makes its sums
  std::set<int32_t> swallowed_;
};

}  // namespace

Graph fuse_bias_sums(const Graph& graph, const FuseOptions& options) {
  return BiasFusion(graph, options).run();
}

}  // namespace tandem
