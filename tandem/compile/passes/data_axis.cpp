#include "tandem/compile/passes/data_axis.h"

#include <algorithm>
#include <set>

#include "tandem/base/error.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

constexpr std::string_view kGradPrefix = "grad:";

Value leaf(Graph& graph, std::string name, TensorType type, std::string_view category, int32_t block) {
  return graph.add(zero_state(std::move(name), std::move(type), category, Phase::Forward, block));
}

class DataAxis {
 public:
  DataAxis(const Graph& graph, const UnitLayout& layout, const DataAxisOptions& options, bool reduces)
      : graph_(graph),
        layout_(layout),
        options_(options),
        reduces_(reduces),
        rewrite_(graph),
        state_(layout.units().size()) {}

  Graph run() {
    find_narrow_units();
    find_uses();
    for (size_t u = 0; u < state_.size(); ++u) {
      if (!used_.contains(u)) continue;
      weights_[u] = weights_leaf(rewrite_.graph(), layout_, layout_.units()[u], options_);
      if (!is_gathered()) bind_weights(u, weights_[u], Phase::Forward);
    }
    plan_gathers();
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      if (const auto it = gathers_before_.find(id); it != gathers_before_.end()) {
        for (const auto& [unit, phase] : it->second) gather(unit, phase);
      }
      const Node& node = graph_.node(id);
      if (node.op == Op::Param || is_gradient(node)) continue;
      if (scales_parts(node)) {
        scale_parts(id);
        continue;
      }
      if (is_gathered()) choose_weights(node);
      if (reads_narrow(node) && node.attrs.integer("rows") != 0) {  // as it was gathered
        rewrite_.set({id, 0}, rewrite_.at(node.inputs[0]));
        continue;
      }
      for (Value input : node.inputs) bind_gradient(input);
      rewrite_.copy(id);
      follow_gradients(id);
    }
    return rewrite_.finish();
  }

 private:
  struct UnitState {
    std::map<size_t, std::pair<Value, Value>> views;  // parameter -> its view in forward, in backward
    Value gradients;                                  // the flat buffer, once there is one in this pass
    std::map<size_t, Value> finals;                   // parameter -> the last value of its accumulator (old)
    int64_t writes_left = 0;
  };

  bool is_gathered() const { return options_.offload_weights || is_sharded(); }
  static bool is_gradient(const Node& node) {
    return node.op == Op::State && node.name.starts_with(kGradPrefix) && !node.name.ends_with(kEmbeddingPart);
  }
  const UnitLayout::Place* place_of(Value value) const {
    const Node& node = graph_.node(value.node);
    if (node.op == Op::Param) return layout_.find(node.name);
    if (is_gradient(node)) return layout_.find(node.name.substr(kGradPrefix.size()));
    return nullptr;
  }

  bool is_sharded() const { return options_.sharding.weights && layout_.ranks() > 1; }

  // Scales of sharded weights, which no rank sees as a whole.
  bool scales_parts(const Node& node) const { return node.op == Op::Fp8WeightScales && is_sharded(); }

  // Whether a weight that was gathered in 8 bits is quantized here.
  bool reads_narrow(const Node& node) const {
    if (node.op != Op::Fp8Quantize) return false;
    const UnitLayout::Place* place = place_of(node.inputs[0]);
    return place != nullptr && narrow_.contains(place->unit);
  }

  // Units whose weights are all read in 8 bits only, and that are sharded: they travel that way.
  void find_narrow_units() {
    if (!is_sharded() || options_.offload_weights) return;
    std::set<size_t> wide;
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      const Node& node = graph_.node(id);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const UnitLayout::Place* place = place_of(node.inputs[i]);
        if (place == nullptr || graph_.node(node.inputs[i].node).op != Op::Param) continue;
        if (node.op == Op::Fp8WeightScales) {
          narrow_[place->unit][place->param] = static_cast<int64_t>(i);
        } else if (node.op != Op::Fp8Quantize) {
          wide.insert(place->unit);
        }
      }
    }
    std::erase_if(narrow_, [&](const auto& item) {
      return wide.contains(item.first) || item.second.size() != layout_.units()[item.first].params.size();
    });
  }

  // The largest number of each weight in this rank's parts, then of all ranks.
  void scale_parts(int32_t id) {
    const Node& node = graph_.node(id);
    Graph& graph = rewrite_.graph();
    std::vector<Value> pieces;
    std::string slots;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const UnitLayout::Place& place = *place_of(node.inputs[i]);
      const Unit& unit = layout_.units()[place.unit];
      const Range own = layout_.own(unit);
      for (const ParamPiece& piece : pieces_in(unit, own)) {
        if (piece.param != &layout_.param(place)) continue;
        pieces.push_back(view(graph, weights_.at(place.unit), piece.range.begin - own.begin,
                              Shape({piece.range.elems()}), kNoBlock, node.phase));
        slots += fmt::format("{}{}", slots.empty() ? "" : ",", i);
      }
    }
    const auto num_slots = static_cast<int64_t>(node.inputs.size()), ranks = int64_t{layout_.ranks()};
    const Value range = append(graph, Op::Fp8WeightScales, pieces,
                               {{"slots", slots}, {"num_slots", num_slots}}, kNoBlock, node.phase);
    const Value ranges =
        append(graph, Op::AllGather, {range}, {{"axis", "data"}, {"size", ranks}}, kNoBlock, node.phase);
    scales_ = append(graph, Op::Fp8Scales, {ranges}, {{"unknown", int64_t{0}}, {"parts", ranks}}, kNoBlock,
                     node.phase);
    rewrite_.set({id, 0}, scales_);
  }

  // This rank's part of a unit in 8 bits.
  Value quantized_part(size_t u, Phase phase) {
    const Unit& unit = layout_.units()[u];
    const Range own = layout_.own(unit);
    std::string pieces;
    for (const ParamPiece& piece : pieces_in(unit, own)) {
      const auto param = static_cast<size_t>(piece.param - unit.params.data());
      pieces += fmt::format("{}{}:{}:{}", pieces.empty() ? "" : ",", narrow_.at(u).at(param),
                            piece.range.begin - own.begin, piece.range.elems());
    }
    return append(rewrite_.graph(), Op::Fp8Quantize, {weights_[u], scales_},
                  {{"slot", int64_t{0}},
                   {"pieces", pieces},
                   {"dtype", std::string(dtype_name(DType::F8E4M3))},
                   {"rows", int64_t{1}},
                   {"columns", int64_t{0}}},
                  unit.block, phase);
  }

  void find_uses() {
    std::map<Value, size_t> unit_of;  // accumulators on their way
    for (int32_t id = 0; id < graph_.num_nodes(); ++id) {
      const Node& node = graph_.node(id);
      if (scales_parts(node)) {
        for (Value input : node.inputs) used_.insert(place_of(input)->unit);
        continue;
      }
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const UnitLayout::Place* place = place_of(node.inputs[i]);
        if (place == nullptr) continue;
        if (graph_.node(node.inputs[i].node).op == Op::Param) {
          used_.insert(place->unit);
          auto& uses = node.phase == Phase::Forward ? forward_uses_ : backward_uses_;
          uses.try_emplace(place->unit, id);
        } else {
          unit_of[node.inputs[i]] = place->unit;
        }
      }
      for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
        const int alias = aliased_input(node, i);
        if (alias < 0) continue;
        const auto it = unit_of.find(node.inputs[static_cast<size_t>(alias)]);
        if (it == unit_of.end()) continue;
        unit_of[{id, i}] = it->second;
        ++state_[it->second].writes_left;
      }
    }
  }

  // Each unit is gathered when the one before it begins, so that it is there when its turn comes. What lies
  // outside blocks stays from forward to backward, where its last use is followed by its first one; between
  // the two passes of a pipeline's micro-batch it would stay for each micro-batch that is under way.
  void plan_gathers() {
    if (!is_gathered()) return;
    plan_phase(forward_uses_, Phase::Forward);
    std::map<size_t, int32_t> again;
    for (const auto& [unit, id] : backward_uses_) {
      const bool stays = layout_.units()[unit].block == kNoBlock && !options_.in_pipeline;
      if (!stays || !forward_uses_.contains(unit)) again[unit] = id;
    }
    plan_phase(again, Phase::Backward);
  }

  void plan_phase(const std::map<size_t, int32_t>& uses, Phase phase) {
    std::vector<std::pair<int32_t, size_t>> order;
    for (const auto& [unit, id] : uses) order.emplace_back(id, unit);
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i) {
      const int32_t before = order[i == 0 ? 0 : i - 1].first;
      gathers_before_[before].emplace_back(order[i].second, phase);
    }
  }

  void gather(size_t u, Phase phase) {
    const Unit& unit = layout_.units()[u];
    Graph& graph = rewrite_.graph();
    Value flat = weights_[u];
    if (options_.offload_weights)
      flat = append(graph, Op::Copy, {flat}, {{"to", "device"}}, unit.block, phase);
    if (narrow_.contains(u)) flat = quantized_part(u, phase);
    if (is_sharded()) {
      flat = append(graph, Op::AllGather, {flat}, {{"axis", "data"}, {"size", int64_t{layout_.ranks()}}},
                    unit.block, phase);
    }
    bind_weights(u, flat, phase);
  }

  void bind_weights(size_t u, Value flat, Phase phase) {
    const Unit& unit = layout_.units()[u];
    for (size_t p = 0; p < unit.params.size(); ++p) {
      const UnitParam& param = unit.params[p];
      const Value made = view(rewrite_.graph(), flat, param.begin, param.type.shape, unit.block, phase);
      auto& views = state_[u].views[p];
      (phase == Phase::Forward ? views.first : views.second) = made;
      const Value old = graph_.find(param.name);
      if (old.valid()) rewrite_.set(old, made);
    }
  }

  void choose_weights(const Node& node) {
    for (Value input : node.inputs) {
      if (graph_.node(input.node).op != Op::Param) continue;
      const UnitLayout::Place* place = place_of(input);
      const auto& [forward, backward] = state_[place->unit].views.at(place->param);
      rewrite_.set(input, node.phase == Phase::Forward || !backward.valid() ? forward : backward);
    }
  }

  // An accumulator's first use in this pass makes its unit's buffer.
  void bind_gradient(Value value) {
    const Node& node = graph_.node(value.node);
    if (!is_gradient(node) || rewrite_.has(value)) return;
    const UnitLayout::Place* place = place_of(value);
    TANDEM_CHECK(place != nullptr, "'{}' belongs to no unit", node.name);
    UnitState& state = state_[place->unit];
    const Unit& unit = layout_.units()[place->unit];
    if (!state.gradients.valid()) state.gradients = gradient_buffer(unit);
    const UnitParam& param = layout_.param(*place);
    rewrite_.set(value, view(rewrite_.graph(), state.gradients, param.begin, param.type.shape, unit.block,
                             Phase::Backward));
    accumulator_of_[value] = *place;
  }

  Value gradient_buffer(const Unit& unit) {
    Graph& graph = rewrite_.graph();
    Attrs attrs{{"dtype", std::string(dtype_name(unit.gradients))},
                {"shape", shape_attr(Shape({unit.elems}))}};
    if (keeps_whole_gradients(layout_, options_))
      return gradients_leaf(graph, unit, options_);  // the update leaves zeros, where this adds
    if (options_.overwrites) attrs.set("unset", int64_t{1});
    return append(graph, Op::Zeros, {}, attrs, unit.block, Phase::Backward);
  }

  void follow_gradients(int32_t id) {
    const Node& node = graph_.node(id);
    std::set<size_t> touched;
    for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i) {
      const int alias = aliased_input(node, i);
      if (alias < 0) continue;
      const auto it = accumulator_of_.find(node.inputs[static_cast<size_t>(alias)]);
      if (it == accumulator_of_.end()) continue;
      const UnitLayout::Place place = it->second;
      accumulator_of_[{id, i}] = place;
      state_[place.unit].finals[place.param] = {id, i};
      --state_[place.unit].writes_left;
      touched.insert(place.unit);
    }
    for (size_t u : touched) {
      if (state_[u].writes_left == 0) reduce(u);
    }
  }

  void reduce(size_t u) {
    const Unit& unit = layout_.units()[u];
    Graph& graph = rewrite_.graph();
    std::vector<Value> inputs = {state_[u].gradients};
    for (const auto& [param, value] : state_[u].finals) inputs.push_back(rewrite_.at(value));
    const Value joined = append(graph, Op::Join, inputs, {}, unit.block, Phase::Backward);
    if (options_.fixed_order && layout_.ranks() == 1) {
      const Value sum = gradient_part_leaf(graph, layout_, unit);
      append(graph, Op::Add, {sum, joined, sum}, {}, unit.block, Phase::Backward);
      return;
    }
    if (layout_.ranks() == 1 || !reduces_) return;
    const Value dst = options_.once ? view(graph, joined, layout_.own(unit).begin,
                                           Shape({layout_.part(unit)}), unit.block, Phase::Backward)
                                    : gradient_part_leaf(graph, layout_, unit);
    const Attrs narrow{{"dtype", std::string(dtype_name(options_.reduce))}};
    const Value sent = options_.reduce == DType::F32 || unit.gradients == options_.reduce
                           ? joined
                           : append(graph, Op::Cast, {joined}, narrow, unit.block, Phase::Backward);
    append(
        graph, Op::ReduceScatter, {sent, dst},
        {{"axis", "data"},
         {"size", int64_t{layout_.ranks()}},
         {"accumulate", options_.fixed_order ? int64_t{2} : int64_t{options_.accumulates && !options_.once}}},
        unit.block, Phase::Backward);
  }

  const Graph& graph_;
  const UnitLayout& layout_;
  const DataAxisOptions& options_;
  const bool reduces_;
  Rewrite rewrite_;
  std::vector<UnitState> state_;
  std::set<size_t> used_;
  std::map<size_t, Value> weights_;
  std::map<size_t, int32_t> forward_uses_, backward_uses_;  // unit -> first node that reads its weights
  std::map<int32_t, std::vector<std::pair<size_t, Phase>>> gathers_before_;
  std::map<Value, UnitLayout::Place> accumulator_of_;
  std::map<size_t, std::map<size_t, int64_t>> narrow_;  // units in 8 bits -> parameter -> its scale's slot
  Value scales_;
};

}  // namespace

Sharding sharding_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::Single:
    case Strategy::Dp:
    case Strategy::Ddp: return {};
    case Strategy::Zero1:
    case Strategy::Zero2: return {.optimizer = true};
    case Strategy::Fsdp: return {.optimizer = true, .weights = true};
  }
  return {};
}

bool keeps_whole_gradients(const UnitLayout& layout, const DataAxisOptions& options) {
  return (layout.ranks() == 1 && !options.fixed_order) || options.once;
}

Value weights_leaf(Graph& graph, const UnitLayout& layout, const Unit& unit, const DataAxisOptions& options) {
  const int64_t elems = options.sharding.weights ? layout.part(unit) : unit.elems;
  return leaf(graph, "weights:" + unit.name, {layout.storage(), Shape({elems})},
              options.offload_weights ? "host" : "weights", unit.block);
}

Value gradients_leaf(Graph& graph, const Unit& unit, const DataAxisOptions& options) {
  const Value made =
      leaf(graph, "grads:" + unit.name, {unit.gradients, Shape({unit.elems})}, "gradients", unit.block);
  if (options.overwrites) graph.node(made.node).attrs.set("transient", int64_t{1});
  return made;
}

Value gradient_part_leaf(Graph& graph, const UnitLayout& layout, const Unit& unit) {
  return leaf(graph, "grads_part:" + unit.name, {DType::F32, Shape({layout.part(unit)})}, "gradients",
              unit.block);
}

Value view(Graph& graph, Value flat, int64_t begin, const Shape& shape, int32_t block, Phase phase) {
  return append(graph, Op::View, {flat}, {{"begin", begin}, {"shape", shape_attr(shape)}}, block, phase);
}

Graph shard_data(const Graph& graph, const UnitLayout& layout, const DataAxisOptions& options, bool reduces) {
  return DataAxis(graph, layout, options, reduces).run();
}

}  // namespace tandem
