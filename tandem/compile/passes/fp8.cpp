#include "tandem/compile/passes/fp8.h"

#include <algorithm>
#include <map>
#include <set>

#include "tandem/base/error.h"
#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

constexpr int64_t kUnit = 16;  // what the matrix units ask of every dimension

// Scales, as powers of two, before anything was seen: e4m3 then reaches from 3e-5 to 14, e5m2 from 4e-12 to
// 0.01.
constexpr int64_t kUnknownActivation = -5, kUnknownGradient = -22;

bool is_forward_product(const Node& node) {
  return node.op == Op::Matmul && node.phase != Phase::Backward && node.attrs.integer("trans_a") == 0 &&
         node.attrs.integer("trans_b") == 1;
}

// Every block's matrix that only ever stands right in a product of the right size, by its number.
std::map<Value, int64_t> fp8_weights(const Graph& graph) {
  const auto readers_of = readers(graph);
  std::map<Value, int64_t> weights;
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& param = graph.node(id);
    if (param.op != Op::Param || param.block == kNoBlock || param.outputs[0].shape.rank() != 2) continue;
    const Value weight{id, 0};
    const auto it = readers_of.find(weight);
    if (it == readers_of.end()) continue;
    const bool fits = std::ranges::all_of(it->second, [&](int32_t reader) {
      const Node& node = graph.node(reader);
      if (node.op != Op::Matmul || node.inputs[1] != weight || node.inputs[0] == weight) return false;
      const Shape &a = graph.type(node.inputs[0]).shape, &w = param.outputs[0].shape;
      const bool forward = is_forward_product(node);
      const bool backward = node.phase == Phase::Backward && node.attrs.integer("trans_a") == 0 &&
                            node.attrs.integer("trans_b") == 0;
      return (forward || backward) && a.rows() % kUnit == 0 && w[0] % kUnit == 0 && w[1] % kUnit == 0;
    });
    if (fits) weights.emplace(weight, static_cast<int64_t>(weights.size()));
  }
  return weights;
}

// An activation or a gradient that is quantized, and how.
struct Operand {
  std::string_view state;
  int64_t slot = 0;
  bool rows = false, columns = false;
};

class Fp8Pass {
 public:
  Fp8Pass(const Graph& graph, const std::vector<std::string>& slots)
      : graph_(graph),
        weights_(fp8_weights(graph)),
        slots_(slots),
        rewrite_(graph),
        made_(rewrite_.graph()) {}

  Graph run() {
    if (weights_.empty()) return graph_;
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) find_operands(id);
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) rewrite_.copy_leaf(id);
    begin_tracking(kFp8Activations, kUnknownActivation);
    begin_tracking(kFp8Gradients, kUnknownGradient);
    std::vector<Value> all(weights_.size());
    for (const auto& [weight, slot] : weights_) all[static_cast<size_t>(slot)] = rewrite_.at(weight);
    weight_scales_ = append(made_, Op::Fp8WeightScales, all, {});
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      if (!is_leaf(graph_.node(id).op)) emit(id);
    }
    return rewrite_.finish();
  }

 private:
  // What has been seen of tensors of one kind, and is being seen.
  struct Tracking {
    Value scales, need;
  };

  void begin_tracking(std::string_view name, int64_t unknown) {
    const auto slots = static_cast<int64_t>(slots_.size());
    const Value range = made_.add(fp8_state(name, slots, Phase::Forward));
    const Value need = made_.add(fp8_need(name, slots, Phase::Forward));
    tracked_[name] = {append(made_, Op::Fp8Scales, {range}, {{"unknown", unknown}}), need};
  }

  // The matrix whose gradient a product adds to, or nothing.
  Value weight_of_gradient(const Node& node) const {
    if (node.op != Op::MatmulAcc || node.attrs.integer("trans_a") != 1 || node.attrs.integer("trans_b") != 0)
      return {};
    const Node& acc = graph_.node(node.inputs[0].node);
    if (acc.op != Op::State || !acc.name.starts_with("grad:")) return {};
    const Value weight = graph_.find(acc.name.substr(5));
    return weights_.contains(weight) ? weight : Value{};
  }

  Operand& operand(Value value, std::string_view state, Value weight) {
    const auto slot = std::ranges::find(slots_, graph_.node(weight.node).name);
    TANDEM_CHECK(slot != slots_.end(), "'{}' has no slot", graph_.node(weight.node).name);
    return operands_.try_emplace(value, Operand{state, slot - slots_.begin()}).first->second;
  }

  void find_operands(int32_t id) {
    const Node& node = graph_.node(id);
    if (node.op == Op::Matmul && weights_.contains(node.inputs[1])) {
      const std::string_view state = node.phase == Phase::Backward ? kFp8Gradients : kFp8Activations;
      operand(node.inputs[0], state, node.inputs[1]).rows = true;
    } else if (const Value weight = weight_of_gradient(node); weight.valid()) {
      operand(node.inputs[1], kFp8Gradients, weight).columns = true;
      operand(node.inputs[2], kFp8Activations, weight).columns = true;
    }
  }

  void emit(int32_t id) {
    const Node& node = graph_.node(id);
    if (node.op == Op::Matmul && weights_.contains(node.inputs[1])) {
      emit_product(id);
    } else if (weight_of_gradient(node).valid()) {
      emit_weight_gradient(id);
    } else {
      rewrite_.copy(id);
    }
  }

  // An operand, quantized at its first use: as it is, and transposed.
  struct Quantized {
    Value rows, columns, scales;
    int64_t slot;
  };
  const Quantized& quantized(Value value, int32_t user) {
    if (const auto it = quantized_.find(value); it != quantized_.end()) return it->second;
    const Operand& how = operands_.at(value);
    Tracking& tracking = tracked_.at(how.state);
    const DType dtype = how.state == kFp8Gradients ? DType::F8E5M2 : DType::F8E4M3;
    const Value made = quantize({rewrite_.at(value), tracking.scales, tracking.need}, how, dtype, user);
    const int32_t columns = how.rows ? 1 : 0;
    tracking.need = {made.node, columns + (how.columns ? 1 : 0)};
    return quantized_[value] = {made, {made.node, columns}, tracking.scales, how.slot};
  }

  Value quantize(std::vector<Value> inputs, const Operand& how, DType dtype, int32_t user) {
    const Node& node = graph_.node(user);
    return append(made_, Op::Fp8Quantize, std::move(inputs),
                  {{"slot", how.slot},
                   {"dtype", std::string(dtype_name(dtype))},
                   {"rows", int64_t{how.rows}},
                   {"columns", int64_t{how.columns}}},
                  node.block, node.phase);
  }

  // Weights are quantized where they are used, each time: that is cheaper than keeping them.
  void emit_product(int32_t id) {
    const Node& node = graph_.node(id);
    const Quantized& a = quantized(node.inputs[0], id);
    const int64_t slot = weights_.at(node.inputs[1]);
    const bool backward = node.phase == Phase::Backward;
    const Value b = quantize({rewrite_.at(node.inputs[1]), weight_scales_},
                             {{}, slot, /*rows=*/!backward, /*columns=*/backward}, DType::F8E4M3, id);
    std::vector<Value> inputs = {a.rows, b, a.scales, weight_scales_};
    if (node.inputs.size() > 2) inputs.push_back(rewrite_.at(node.inputs[2]));
    rewrite_.set({id, 0}, append(made_, Op::Fp8Matmul, inputs,
                                 {{"slot_a", a.slot},
                                  {"slot_b", slot},
                                  {"dtype", std::string(dtype_name(node.outputs[0].dtype))}},
                                 node.block, node.phase));
  }

  void emit_weight_gradient(int32_t id) {
    const Node& node = graph_.node(id);
    const Quantized dy = quantized(node.inputs[1], id), x = quantized(node.inputs[2], id);
    Attrs attrs{{"slot_a", dy.slot}, {"slot_b", x.slot}};
    if (node.attrs.has("fresh")) attrs.set("fresh", int64_t{1});
    rewrite_.set({id, 0}, append(made_, Op::Fp8MatmulAcc,
                                 {rewrite_.at(node.inputs[0]), dy.columns, x.columns, dy.scales, x.scales},
                                 std::move(attrs), node.block, node.phase));
  }

  const Graph& graph_;
  const std::map<Value, int64_t> weights_;  // with their places among the scales of weights here
  const std::vector<std::string>& slots_;
  Rewrite rewrite_;
  Graph& made_;
  std::map<std::string_view, Tracking> tracked_;
  Value weight_scales_;
  std::map<Value, Operand> operands_;
  std::map<Value, Quantized> quantized_;
};

}  // namespace

Node fp8_state(std::string_view name, int64_t slots, Phase phase) {
  return zero_state(std::string(name), {DType::F32, Shape({slots})}, "optimizer", phase);
}
Node fp8_need(std::string_view name, int64_t slots, Phase phase) {
  return zero_state(fmt::format("{}.need", name), {DType::F32, Shape({slots})}, "gradients", phase);
}

std::vector<std::string> fp8_weight_names(const Graph& forward) {
  const std::map<Value, int64_t> weights = fp8_weights(forward);
  std::vector<std::string> names(weights.size());
  for (const auto& [weight, place] : weights)
    names[static_cast<size_t>(place)] = forward.node(weight.node).name;
  return names;
}

Graph quantize_products(const Graph& graph, const std::vector<std::string>& slots) {
  return Fp8Pass(graph, slots).run();
}

Graph fuse_quantize(Graph graph) {
  const auto quantizes = [](const Node& node) { return node.op == Op::Fp8Quantize; };
  if (std::none_of(graph.nodes().begin(), graph.nodes().end(), quantizes)) return graph;
  const auto readers_of = readers(graph);
  std::map<int32_t, int32_t> maker_of;  // by the quantizing node
  std::set<int32_t> swallowed;
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    if (!quantizes(node) || node.inputs.size() < 3) continue;
    const Value x = node.inputs[0];
    const Op maker = graph.node(x.node).op;
    if ((maker != Op::Swiglu && maker != Op::SwigluGrad) || readers_of.at(x).size() != 1) continue;
    maker_of[id] = x.node;
    swallowed.insert(x.node);
  }
  Rewrite rewrite(graph);
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    if (swallowed.contains(id)) continue;
    const auto it = maker_of.find(id);
    if (it == maker_of.end()) {
      rewrite.copy(id);
      continue;
    }
    const Node &node = graph.node(id), &maker = graph.node(it->second);
    std::vector<Value> inputs;
    for (Value value : maker.inputs) inputs.push_back(rewrite.at(value));
    for (size_t i : {1, 2}) inputs.push_back(rewrite.at(node.inputs[i]));
    const Value made = append(rewrite.graph(), maker.op == Op::Swiglu ? Op::Fp8Swiglu : Op::Fp8SwigluGrad,
                              inputs, node.attrs, node.block, node.phase);
    for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i)
      rewrite.set({id, i}, {made.node, i});
  }
  return rewrite.finish();
}

}  // namespace tandem
