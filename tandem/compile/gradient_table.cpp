#include "tandem/compile/gradient_table.h"

#include <algorithm>
#include <iterator>

#include "tandem/base/error.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"

namespace tandem {

GradientContext::GradientContext(Graph& graph, const PrecisionPolicy& precision, bool split_tied)
    : graph_(graph), precision_(precision) {
  if (!split_tied) return;
  std::set<Value> tables, others;
  for (const Node& node : graph.nodes()) {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      (node.op == Op::Embedding && i == 1 ? tables : others).insert(node.inputs[i]);
  }
  std::set_intersection(tables.begin(), tables.end(), others.begin(), others.end(),
                        std::inserter(split_tables_, split_tables_.end()));
}

GradientContext::Part GradientContext::part_for_embedding(Value table) const {
  return split_tables_.contains(table) ? Part::Embedding : Part::Whole;
}

void GradientContext::set_accumulator(Value param, Value updated, Part part) {
  accumulators_[{param, part}] = updated;
}

Value GradientContext::grad(Value value) const {
  const auto it = grads_.find(value);
  return it == grads_.end() ? Value{} : it->second;
}

bool GradientContext::wants(Value value) const { return reachable_.contains(value); }

void GradientContext::add(Value value, Value gradient) {
  if (!wants(value)) return;
  if (is_param(value)) {
    throw ConfigError(
        "parameter '{}': used where it cannot be trained; parameters are the weights of linear, matmul's "
        "right "
        "operand, conv2d, norms and embedding",
        graph_.node(value.node).name);
  }
  const auto [it, fresh] = grads_.try_emplace(value, gradient);
  if (!fresh) it->second = emit(Op::Add, {gradient, it->second});
}

Value GradientContext::accumulator(Value param, Part part) {
  const auto it = accumulators_.find({param, part});
  if (it != accumulators_.end()) return it->second;
  const Node& node = graph_.node(param.node);
  if (!is_param(param)) throw ConfigError("{}: a weight, gain or bias must be a parameter", op_name(node.op));
  const bool block_matrix = node.block != kNoBlock && node.outputs[0].shape.rank() > 1;
  const DType wanted = block_matrix ? precision_.block_gradients : precision_.gradients;
  const DType dtype = node.outputs[0].dtype == DType::F64 ? DType::F64 : wanted;
  std::string name = "grad:" + node.name + std::string(part == Part::Embedding ? kEmbeddingPart : "");
  Node state =
      zero_state(std::move(name), {dtype, node.outputs[0].shape}, "gradients", Phase::Backward, node.block);
  return accumulators_[{param, part}] = graph_.add(std::move(state));
}

Value GradientContext::emit(Op op, std::vector<Value> inputs, Attrs attrs) {
  return append(graph_, op, std::move(inputs), std::move(attrs), block_, Phase::Backward);
}

namespace {

using Context = GradientContext;

const Node& node_of(Context& c, int32_t id) { return c.graph().node(id); }

// The weight gradient comes before the input gradient: it is the last reader of the saved activation, whose
// memory the input gradient can then take.
void matmul_grad(Context& c, int32_t id) {
  const std::vector<Value> in = node_of(c, id).inputs;
  const bool trans_a = node_of(c, id).attrs.integer("trans_a") != 0;
  const bool trans_b = node_of(c, id).attrs.integer("trans_b") != 0;
  TANDEM_CHECK(!trans_a, "matmul: no model differentiates a transposed left operand");
  const Value dy = c.grad({id, 0}), a = in[0], b = in[1];
  const auto flags = [](int64_t ta, int64_t tb) { return Attrs{{"trans_a", ta}, {"trans_b", tb}}; };
  if (in.size() > 2) c.set_accumulator(in[2], c.emit(Op::BiasGrad, {c.accumulator(in[2]), dy}));
  const Value left = trans_b ? dy : a, right = trans_b ? a : dy;  // db = dy^T a, or a^T dy
  if (c.is_param(b)) {
    c.set_accumulator(b, c.emit(Op::MatmulAcc, {c.accumulator(b), left, right}, flags(1, 0)));
  } else if (c.wants(b)) {
    c.add(b, c.emit(Op::Matmul, {left, right}, flags(1, 0)));
  }
  if (!c.wants(a)) return;
  Attrs attrs = flags(0, trans_b ? 0 : 1);
  if (node_of(c, id).attrs.integer_or("wide_grad", 0) != 0) attrs.set("wide", int64_t{1});
  c.add(a, c.emit(Op::Matmul, {dy, b}, attrs));
}

void conv2d_grad(Context& c, int32_t id) {
  const std::vector<Value> in = node_of(c, id).inputs;
  Attrs attrs = node_of(c, id).attrs;
  const Value dy = c.grad({id, 0});
  if (in.size() > 2) c.set_accumulator(in[2], c.emit(Op::BiasGrad, {c.accumulator(in[2]), dy}));
  c.set_accumulator(in[1], c.emit(Op::Conv2dGradWeight, {c.accumulator(in[1]), in[0], dy}, attrs));
  if (!c.wants(in[0])) return;
  const Shape x = c.graph().type(in[0]).shape;
  attrs.set("height", x[1]);
  attrs.set("width", x[2]);
  c.add(in[0], c.emit(Op::Conv2dGradInput, {dy, in[1]}, attrs));
}

// Norms share a shape: dy, x, gamma, the statistics, then accumulators for gamma and, where there is one,
// beta.
void norm_grad(Context& c, int32_t id, Op op, int num_stats, bool has_beta) {
  const std::vector<Value> in = node_of(c, id).inputs;
  std::vector<Value> inputs = {c.grad({id, 0}), in[0], in[1]};
  for (int i = 1; i <= num_stats; ++i) inputs.push_back({id, i});
  inputs.push_back(c.accumulator(in[1]));
  if (has_beta) inputs.push_back(c.accumulator(in[2]));
  const Value dx = c.emit(op, inputs, node_of(c, id).attrs);
  c.set_accumulator(in[1], {dx.node, 1});
  if (has_beta) c.set_accumulator(in[2], {dx.node, 2});
  c.add(in[0], dx);
}

// The sums that the gradient of every row needs are over all ranks' rows; those of the parameters stay this
// rank's own, as the data axis adds them up later.
void sync_batch_norm_grad(Context& c, int32_t id) {
  const std::vector<Value> in = node_of(c, id).inputs;
  const int64_t size = node_of(c, id).attrs.integer("size");
  const Value dy = c.grad({id, 0}), mean{id, 1}, rstd{id, 2};
  const Value sums =
      c.emit(Op::BatchNormGradStats, {dy, in[0], mean, rstd, c.accumulator(in[1]), c.accumulator(in[2])});
  c.set_accumulator(in[1], {sums.node, 1});
  c.set_accumulator(in[2], {sums.node, 2});
  const Value total = c.emit(Op::AllReduce, {sums}, {{"axis", "data"}, {"size", size}});
  c.add(in[0], c.emit(Op::BatchNormGradApply, {dy, in[0], in[1], mean, rstd, total}, {{"size", size}}));
}

void attention_grad(Context& c, int32_t id) {
  const Value qkv = node_of(c, id).inputs[0];
  c.add(qkv, c.emit(Op::AttentionGrad, {c.grad({id, 0}), qkv, {id, 0}, {id, 1}}, node_of(c, id).attrs));
}

void embedding_grad(Context& c, int32_t id) {
  const std::vector<Value> in = node_of(c, id).inputs;
  const Value dy = c.grad({id, 0});
  const Attrs attrs = node_of(c, id).attrs;
  const Context::Part part = c.part_for_embedding(in[1]);
  c.set_accumulator(in[1], c.emit(Op::EmbeddingGrad, {c.accumulator(in[1], part), in[0], dy}, attrs), part);
  if (in.size() > 2) c.set_accumulator(in[2], c.emit(Op::PositionGrad, {c.accumulator(in[2]), dy}));
}

void concat_grad(Context& c, int32_t id) {
  int64_t begin = 0;
  for (Value input : std::vector<Value>(node_of(c, id).inputs)) {
    const int64_t size = c.graph().type(input).shape.last();
    if (c.wants(input))
      c.add(input, c.emit(Op::Slice, {c.grad({id, 0})}, {{"begin", begin}, {"size", size}}));
    begin += size;
  }
}

void pool_grad(Context& c, int32_t id, Op op, std::vector<Value> inputs) {
  const Value x = node_of(c, id).inputs[0];
  const Shape shape = c.graph().type(x).shape;
  c.add(x, c.emit(op, std::move(inputs), {{"height", shape[1]}, {"width", shape[2]}}));
}

Value input(Context& c, int32_t id, size_t i = 0) { return node_of(c, id).inputs[i]; }

}  // namespace

GradientRule gradient_rule(Op op) {
  switch (op) {
    case Op::Matmul: return matmul_grad;
    case Op::Conv2d: return conv2d_grad;
    case Op::LayerNorm: return [](Context& c, int32_t id) { norm_grad(c, id, Op::LayerNormGrad, 2, true); };
    case Op::RmsNorm: return [](Context& c, int32_t id) { norm_grad(c, id, Op::RmsNormGrad, 1, false); };
    case Op::BatchNorm: return [](Context& c, int32_t id) { norm_grad(c, id, Op::BatchNormGrad, 2, true); };
    case Op::BatchNormApply: return sync_batch_norm_grad;
    case Op::GroupNorm: return [](Context& c, int32_t id) { norm_grad(c, id, Op::GroupNormGrad, 2, true); };
    case Op::Attention: return attention_grad;
    case Op::Rope:
      return [](Context& c, int32_t id) {
        c.add(input(c, id), c.emit(Op::RopeGrad, {c.grad({id, 0})}, node_of(c, id).attrs));
      };
    case Op::Add:
      return [](Context& c, int32_t id) {
        c.add(input(c, id, 0), c.grad({id, 0}));
        c.add(input(c, id, 1), c.grad({id, 0}));
      };
    case Op::Scale:
      return [](Context& c, int32_t id) {
        c.add(input(c, id), c.emit(Op::Scale, {c.grad({id, 0})}, node_of(c, id).attrs));
      };
    case Op::Gelu:
      return [](Context& c, int32_t id) {
        c.add(input(c, id), c.emit(Op::GeluGrad, {c.grad({id, 0}), input(c, id)}));
      };
    case Op::Relu:
      return [](Context& c, int32_t id) {
        c.add(input(c, id), c.emit(Op::ReluGrad, {c.grad({id, 0}), {id, 0}}));
      };
    case Op::Swiglu:
      return [](Context& c, int32_t id) {
        c.add(input(c, id), c.emit(Op::SwigluGrad, {c.grad({id, 0}), input(c, id)}));
      };
    case Op::Concat: return concat_grad;
    case Op::Reshape:
      return [](Context& c, int32_t id) {
        const Shape shape = c.graph().type(input(c, id)).shape;
        c.add(input(c, id), c.emit(Op::Reshape, {c.grad({id, 0})}, {{"shape", shape_attr(shape)}}));
      };
    case Op::Cast:
      return [](Context& c, int32_t id) {
        const DType dtype = c.graph().type(input(c, id)).dtype;
        c.add(input(c, id), c.emit(Op::Cast, {c.grad({id, 0})}, {{"dtype", std::string(dtype_name(dtype))}}));
      };
    case Op::MaxPool2d:
      return [](Context& c, int32_t id) { pool_grad(c, id, Op::MaxPool2dGrad, {c.grad({id, 0}), {id, 1}}); };
    case Op::GlobalAvgPool:
      return [](Context& c, int32_t id) { pool_grad(c, id, Op::GlobalAvgPoolGrad, {c.grad({id, 0})}); };
    case Op::Embedding: return embedding_grad;
    case Op::Recv:  // from the chunk before, which waits for the gradient of what it sent
      return [](Context& c, int32_t id) {
        const Attrs& attrs = node_of(c, id).attrs;
        c.emit(Op::Send, {c.grad({id, 0})}, {{"axis", attrs.text("axis")}, {"peer", attrs.integer("peer")}});
      };
    case Op::AllGather:
      return [](Context& c, int32_t id) {
        Attrs attrs = node_of(c, id).attrs;
        const DType dtype = c.graph().type(input(c, id)).dtype;
        attrs.set("accumulate", int64_t{0});
        if (c.graph().type(c.grad({id, 0})).dtype != dtype)
          attrs.set("dtype", std::string(dtype_name(dtype)));
        c.add(input(c, id), c.emit(Op::ReduceScatter, {c.grad({id, 0})}, attrs));
      };
    case Op::ReduceScatter:
      return [](Context& c, int32_t id) {
        const Attrs& attrs = node_of(c, id).attrs;
        c.add(input(c, id), c.emit(Op::AllGather, {c.grad({id, 0})},
                                   {{"axis", attrs.text("axis")}, {"size", attrs.integer("size")}}));
      };
    default: return nullptr;
  }
}

}  // namespace tandem
