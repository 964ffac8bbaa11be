#include "tandem/compile/passes/fuse.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "tandem/compile/passes/fp8.h"
#include "tandem/compile/passes/fuse_bias.h"
#include "tandem/compile/passes/norms/fuse_norm.h"
#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"
#include "tandem/ir/loss_terms.h"

namespace tandem {
namespace {

// Each matcher records, for the node where the fused op is to stand, how to emit it, and which nodes it
// swallows. Emission happens in one rewrite at the end, in graph order.
class Fusion {
 public:
  Fusion(const Graph& graph, const FuseOptions& options)
      : graph_(graph), options_(options), readers_(readers(graph)), rewrite_(graph) {
    for (const GraphOutput& output : graph.outputs()) pinned_.push_back(output.value);
  }

  Graph run() {
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      switch (graph_.node(id).op) {
        case Op::Gelu: match_matmul_gelu(id); break;
        case Op::GeluGrad: match_gelu_grad(id); break;
        case Op::LayerNorm: match_add_norm(id, Op::AddLayerNorm); break;
        case Op::RmsNorm: match_add_norm(id, Op::AddRmsNorm); break;
        case Op::Add: match_norm_grad_add(id); break;
        case Op::CrossEntropy: match_linear_loss(id); break;
        case Op::CrossEntropyGrad: match_linear_loss_grad(id); break;
        default: break;
      }
    }
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) rewrite_.copy_leaf(id);
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      if (const auto it = emit_at_.find(id); it != emit_at_.end()) {
        it->second();
      } else if (!swallowed_.contains(id) && !is_leaf(graph_.node(id).op)) {
        rewrite_.copy(id);
      }
    }
    return rewrite_.finish();
  }

 private:
  const std::vector<int32_t>& readers_of(Value value) {
    static const std::vector<int32_t> kNone;
    const auto it = readers_.find(value);
    return it == readers_.end() ? kNone : it->second;
  }
  bool pinned(Value value) const { return std::find(pinned_.begin(), pinned_.end(), value) != pinned_.end(); }
  bool free_node(int32_t id) const { return !swallowed_.contains(id) && !emit_at_.contains(id); }
  void swallow(int32_t id) { swallowed_.insert({id, true}); }

  // Emits `op` in place of node `at`, in its block and phase, from old input values.
  Value emit(int32_t at, Op op, const std::vector<Value>& old_inputs, Attrs attrs) {
    std::vector<Value> inputs;
    inputs.reserve(old_inputs.size());
    for (Value value : old_inputs) inputs.push_back(rewrite_.at(value));
    return append(rewrite_.graph(), op, inputs, std::move(attrs), graph_.node(at).block,
                  graph_.node(at).phase);
  }

  void match_matmul_gelu(int32_t gelu) {
    const Value pre = graph_.node(gelu).inputs[0];
    const Node& product = graph_.node(pre.node);
    const bool pre_needed = readers_of(pre).size() > 1 || options_.gelu_of_product;
    if (product.op != Op::Matmul || product.inputs.size() != 3 || product.phase != graph_.node(gelu).phase)
      return;
    if (!pre_needed || pinned(pre) || !free_node(pre.node)) return;
    // Backward takes the gelu of the stored product then, whether the product was kept or is made again.
    const bool of_stored =
        options_.gelu_of_product && options_.gelu_again && product.phase == Phase::Recompute;
    if (!of_stored) swallow(gelu);
    emit_at_[pre.node] = [this, gelu, pre, of_stored] {
      const Node& node = graph_.node(pre.node);
      const Value fused = emit(pre.node, Op::MatmulGelu, node.inputs, node.attrs);
      if (!of_stored) rewrite_.set({gelu, 0}, {fused.node, 0});
      rewrite_.set(pre, {fused.node, 1});
    };
  }

  void match_gelu_grad(int32_t slope) {
    const Value dy = graph_.node(slope).inputs[0];
    const Node& product = graph_.node(dy.node);
    if (!options_.gelu_grad || product.op != Op::Matmul || product.inputs.size() != 2) return;
    if (readers_of(dy).size() != 1 || pinned(dy) || !free_node(dy.node)) return;
    swallow(dy.node);
    emit_at_[slope] = [this, slope, dy] {
      const Node& node = graph_.node(dy.node);
      rewrite_.set({slope, 0},
                   emit(slope, Op::MatmulGeluGrad,
                        {node.inputs[0], node.inputs[1], graph_.node(slope).inputs[1]}, node.attrs));
    };
  }

  void match_add_norm(int32_t norm, Op fused_op) {
    const Value sum = graph_.node(norm).inputs[0];
    const Node& add = graph_.node(sum.node);
    if (add.op != Op::Add || add.phase != graph_.node(norm).phase || pinned(sum) || !free_node(sum.node))
      return;
    if (readers_of(sum).front() != norm) return;  // somebody needs the sum before the norm runs
    swallow(sum.node);
    emit_at_[norm] = [this, norm, sum, fused_op] {
      std::vector<Value> inputs = graph_.node(sum.node).inputs;
      const Node& node = graph_.node(norm);
      inputs.insert(inputs.end(), node.inputs.begin() + 1, node.inputs.end());
      const Value fused = emit(norm, fused_op, inputs, node.attrs);
      rewrite_.set(sum, fused);
      for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
        rewrite_.set({norm, i}, {fused.node, i + 1});
      }
    };
  }

  void match_norm_grad_add(int32_t add) {
    const Value dx = graph_.node(add).inputs[0], residual = graph_.node(add).inputs[1];
    const Node& norm = graph_.node(dx.node);
    if ((norm.op != Op::LayerNormGrad && norm.op != Op::RmsNormGrad) || dx.index != 0) return;
    if (readers_of(dx).size() != 1 || residual.node >= dx.node || !free_node(dx.node) || !free_node(add))
      return;
    swallow(add);
    emit_at_[dx.node] = [this, add, dx, residual] {
      const Node& node = graph_.node(dx.node);
      std::vector<Value> inputs = node.inputs;
      inputs.push_back(residual);
      const Value fused = emit(dx.node, node.op, inputs, node.attrs);
      rewrite_.set({add, 0}, fused);
      for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i)
        rewrite_.set({dx.node, i}, {fused.node, i});
    };
  }

  // From a projection to the logits of the loss, which may be scaled and capped on their way.
  struct LogitPath {
    int32_t projection = -1;
    std::optional<int32_t> scale, softcap;
    std::vector<int32_t> back = {};  // the gradients of these two
  };

  // The way to logits that are worth chunking, or nothing. With gradients, that of the cap reads its input.
  std::optional<LogitPath> large_projection(Value logits, bool with_gradient) {
    LogitPath path;
    Value at = logits;
    const auto step_back = [&](Op op, size_t num_readers, std::optional<int32_t>& found) {
      const Node& node = graph_.node(at.node);
      if (node.op != op || !options_.logit_steps) return true;
      found = at.node;
      at = node.inputs[0];
      return readers_of(at).size() == num_readers && !pinned(at);
    };
    if (pinned(logits) || readers_of(logits).size() != 1) return std::nullopt;
    if (!step_back(Op::Softcap, with_gradient ? 2 : 1, path.softcap)) return std::nullopt;
    if (!step_back(Op::Scale, 1, path.scale)) return std::nullopt;
    const Node& node = graph_.node(at.node);
    const bool plain = node.op == Op::Matmul && node.inputs.size() == 2 &&
                       node.attrs.integer("trans_b") == 1 && node.attrs.integer("trans_a") == 0;
    if (!plain) return std::nullopt;
    const TensorType& type = graph_.type(logits);
    const bool ragged = type.shape.last() * dtype_bytes(type.dtype) % 16 != 0;
    const bool large = type.bytes() > options_.chunk_logits_above;
    if (!large && !(ragged && options_.chunk_ragged_logits)) return std::nullopt;
    path.projection = at.node;
    return path;
  }
  void swallow(const LogitPath& path) {
    swallow(path.projection);
    for (std::optional<int32_t> id : {path.scale, path.softcap}) {
      if (id) swallow(*id);
    }
    for (int32_t id : path.back) swallow(id);
  }
  Attrs chunk_attrs(Value logits, const LogitPath& path) const {
    const TensorType& type = graph_.type(logits);
    const int64_t row_bytes = type.shape.last() * dtype_bytes(type.dtype);
    const int64_t all = type.shape.rows();
    int64_t rows = std::min(all, std::max<int64_t>(256, options_.chunk_bytes / row_bytes / 64 * 64));
    if (options_.even_chunks) {
      const int64_t count = (all + rows - 1) / rows;
      rows = std::min(all, ((all + count - 1) / count + 63) / 64 * 64);
    }
    Attrs attrs{{"chunk", rows}};
    if (path.scale) attrs.set("scale", graph_.node(*path.scale).attrs.real("factor"));
    if (path.softcap) attrs.set("softcap", graph_.node(*path.softcap).attrs.real("cap"));
    return attrs;
  }

  void match_linear_loss(int32_t loss) {
    const Value logits = graph_.node(loss).inputs[0];
    const auto path = large_projection(logits, /*with_gradient=*/false);
    if (!path) return;
    swallow(*path);
    emit_at_[loss] = [this, loss, logits, path] {
      const Node& product = graph_.node(path->projection);
      rewrite_.set({loss, 0}, emit(loss, Op::LinearCrossEntropy,
                                   {product.inputs[0], product.inputs[1], graph_.node(loss).inputs[1]},
                                   chunk_attrs(logits, *path)));
    };
  }

  // Follows the gradient of the logits to that of the product; nothing where somebody else reads it.
  std::optional<Value> gradient_of_product(Value gradient, LogitPath& path) {
    const auto step = [&](Op op) {
      if (readers_of(gradient).size() != 1) return false;
      const int32_t reader = readers_of(gradient)[0];
      if (graph_.node(reader).op != op || graph_.node(reader).inputs[0] != gradient) return false;
      path.back.push_back(reader);
      gradient = {reader, 0};
      return free_node(reader);
    };
    if (path.softcap && !step(Op::SoftcapGrad)) return std::nullopt;
    if (path.scale && !step(Op::Scale)) return std::nullopt;
    return gradient;
  }

  bool adds_to_leaf(int32_t id) const {
    return graph_.node(id).op == Op::MatmulAcc && is_leaf(graph_.node(graph_.node(id).inputs[0].node).op);
  }

  void match_linear_loss_grad(int32_t loss) {
    if (graph_.node(loss).inputs.size() > 3) return;  // two labels a row
    const Value logits = graph_.node(loss).inputs[0];
    auto path = large_projection(logits, /*with_gradient=*/true);
    if (!path) return;
    const auto gradient = gradient_of_product({loss, 0}, *path);
    if (!gradient) return;
    const std::vector<int32_t>& users = readers_of(*gradient);
    const bool frozen = users.size() == 1;  // the weight has no gradient
    if (users.empty() || users.size() > 2) return;
    const int32_t dw = users.front(), dx = users.back();
    if (graph_.node(dx).op != Op::Matmul) return;
    if (!frozen && !adds_to_leaf(dw)) return;
    swallow(*path);
    swallow(dw);
    swallow(dx);
    emit_at_[loss] = [this, loss, logits, path, dw, dx, frozen] {
      const Node& product = graph_.node(path->projection);
      const Node& node = graph_.node(loss);
      Attrs attrs = chunk_attrs(logits, *path);
      if (!frozen && graph_.node(dw).attrs.has("fresh")) attrs.set("fresh", int64_t{1});
      write_loss_terms(read_loss_terms(node.attrs), attrs);
      std::vector<Value> inputs = {product.inputs[0], product.inputs[1], node.inputs[1], node.inputs[2]};
      if (!frozen) inputs.push_back(graph_.node(dw).inputs[0]);
      const Value fused = emit(loss, Op::LinearCrossEntropyGrad, inputs, std::move(attrs));
      rewrite_.set({loss, 1}, {fused.node, 1});
      if (!frozen) rewrite_.set({dw, 0}, {fused.node, 2});
      rewrite_.set({dx, 0}, {fused.node, 0});
    };
  }

  const Graph& graph_;
  const FuseOptions& options_;
  std::map<Value, std::vector<int32_t>> readers_;
  Rewrite rewrite_;
  std::vector<Value> pinned_;
  std::map<int32_t, bool> swallowed_;
  std::map<int32_t, std::function<void()>> emit_at_;
};

}  // namespace

Graph fuse(const Graph& graph, const FuseOptions& options) {
  Graph fused = fuse_quantize(Fusion(graph, options).run());
  if (options.image_norms) fused = fuse_norms(fused);
  return options.bias_sums ? fuse_bias_sums(fused, options) : fused;
}

}  // namespace tandem
