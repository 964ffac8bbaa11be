#include "tandem/compile/update_graph.h"

#include <algorithm>
#include <array>
#include <map>

#include "tandem/base/error.h"
#include "tandem/base/split_float.h"
#include "tandem/compile/executable.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/passes/fp8.h"
#include "tandem/compile/passes/loss_scaler.h"
#include "tandem/compile/passes/loss_stats.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

// Inputs, the norm over all pieces, optimizer nodes.
class UpdateBuilder {
 public:
  explicit UpdateBuilder(const UpdateOptions& options) : options_(options) {
    hyper_ = input("hyper", {DType::F32, Shape({num_hyper_slots(options.optimizer)})});
    stats_ = input("stats", {DType::F64, Shape({kNumStats})});
    if (options.sums_stats) {
      const Value sum = graph_.add(loss_stats_state(Phase::Update));
      stats_ = emit(Op::AddStats, {stats_, sum});
      clear(sum);
    }
    if (options.precision.scales_loss()) {
      scaler_ = graph_.add(loss_scaler_state(Phase::Update));
      hyper_ = emit(Op::UnscaleHyper, {hyper_, scaler_});
    }
    for (size_t i = 0; i < options.slots.size(); ++i) slots_[options.slots[i]] = static_cast<int64_t>(i);
  }

  Graph& graph() { return graph_; }
  Value emit(Op op, std::vector<Value> inputs, Attrs attrs = {}, int32_t block = kNoBlock) {
    return append(graph_, op, std::move(inputs), std::move(attrs), block, Phase::Update);
  }
  Value state(const std::string& name, TensorType type, std::string_view category, std::string init) {
    const Attrs attrs{{"category", std::string(category)}, {"init", std::move(init)}};
    return graph_.add({Op::State, {}, attrs, {std::move(type)}, kNoBlock, Phase::Update, name});
  }

  // A gradient, or a piece of one, counts for the norm.
  void count(const std::string& param, Value gradient) {
    counted_.push_back(gradient);
    counted_slots_ += fmt::format("{}{}", counted_slots_.empty() ? "" : ",", slots_.at(param));
  }

  // Once all gradients are counted. `world` ranks add up their sums.
  void finish_norm(int world) {
    std::vector<Value> inputs = {hyper_, stats_};
    inputs.insert(inputs.end(), counted_.begin(), counted_.end());
    const auto num_slots = static_cast<int64_t>(options_.slots.size());
    Value sums = emit(Op::SquareSums, inputs, {{"slots", counted_slots_}, {"num_slots", num_slots}});
    if (world > 1) sums = emit(Op::AllReduce, {sums}, {{"axis", "world"}, {"size", int64_t{world}}});
    norm_ = emit(Op::GlobalNorm, {sums}, {{"num_slots", num_slots}});
    graph_.add_output("norm", norm_);
    graph_.add_output("sums", sums);
  }

  struct Group {
    std::vector<Value> tensors;  // w, g, states... [, master]
    bool decay;
  };
  // Returns the node; output i is tensor i of the groups in order. `on_host`: they are in the host's memory.
  Value optimize(const std::vector<Group>& groups, int32_t block, bool on_host = false) {
    std::vector<Value> inputs = {hyper_, norm_};
    if (on_host) {
      for (size_t i : {0, 1}) {
        if (!scalars_on_host_[i].valid()) scalars_on_host_[i] = emit(Op::Copy, {inputs[i]}, {{"to", "host"}});
        inputs[i] = scalars_on_host_[i];
      }
    }
    std::string decay;
    for (const Group& group : groups) {
      inputs.insert(inputs.end(), group.tensors.begin(), group.tensors.end());
      decay += fmt::format("{}{}", decay.empty() ? "" : ",", group.decay ? 1 : 0);
    }
    Attrs attrs{{"masters", int64_t{options_.precision.masters()}}, {"decay", decay}};
    if (options_.keep_gradients) attrs.set("keep", int64_t{1});
    return emit(optimizer_op(options_.optimizer), inputs, std::move(attrs), block);
  }

  // The ranges that the next step's 8-bit scales are made of: the largest need of all `world` ranks.
  void update_ranges(int world) {
    for (std::string_view name : {kFp8Activations, kFp8Gradients}) {
      if (options_.fp8_slots == 0) break;
      const Value range = graph_.add(fp8_state(name, options_.fp8_slots, Phase::Update));
      const Value need = graph_.add(fp8_need(name, options_.fp8_slots, Phase::Update));
      std::vector<Value> inputs = {range, need};
      if (world > 1)
        inputs.push_back(emit(Op::AllGather, {need}, {{"axis", "world"}, {"size", int64_t{world}}}));
      emit(Op::Fp8Ranges, inputs);
    }
  }

  // At the end: the loss scale of the next step.
  void finish_scaler() {
    if (!scaler_.valid()) return;
    const int64_t window = options_.precision.loss_scale_window;
    const Value next = emit(Op::NextLossScale, {scaler_, norm_}, {{"window", window}});
    graph_.add_output(std::string(kLossScaler), next);
  }

  void clear(Value value, int32_t block = kNoBlock) {
    const TensorType type = graph_.type(value);
    emit(Op::Zeros, {value},
         {{"dtype", std::string(dtype_name(type.dtype))}, {"shape", shape_attr(type.shape)}}, block);
  }

  const OptimizerEntry& optimizer() const { return optimizer_entry(options_.optimizer); }
  size_t group_size() const { return 2 + optimizer().states.size() + (options_.precision.masters() ? 1 : 0); }

 private:
  Value input(const std::string& name, TensorType type) {
    return graph_.add({Op::Input, {}, {}, {std::move(type)}, kNoBlock, Phase::Update, name});
  }

  const UpdateOptions& options_;
  Graph graph_;
  Value hyper_, stats_, norm_;
  Value scaler_;                          // where the loss is scaled
  std::array<Value, 2> scalars_on_host_;  // hyper and norm, where an optimizer was offloaded
  std::map<std::string, int64_t> slots_;
  std::vector<Value> counted_;
  std::string counted_slots_;
};

// The update of the units of one rank.
class UnitUpdate {
 public:
  UnitUpdate(const UnitLayout& layout, const DataAxisOptions& data, const UpdateOptions& options)
      : layout_(layout), data_(data), options_(options), builder_(options), graph_(builder_.graph()) {
    for (const Unit& unit : layout.units()) {
      if (!options.untrained.contains(unit.name)) units_.push_back(&unit);
    }
  }

  Graph run() {
    for (const Unit* unit : units_) gradients_.push_back(reduced(*unit));
    for (size_t u = 0; u < units_.size(); ++u) count_pieces(*units_[u], gradients_[u]);
    builder_.finish_norm(layout_.position().shape.world());
    for (const Node& state : options_.running) average(state);
    if (options_.together) {
      update_together();
    } else {
      update_one_by_one();
    }
    builder_.update_ranges(layout_.position().shape.world());
    builder_.finish_scaler();
    return std::move(graph_);
  }

 private:
  struct UnitGradients {
    Value flat;   // holds `range` of the unit, summed over the data axis
    Range range;  // this rank's part, or the whole
    Value whole;  // the unit's buffer, where `flat` is a view of it
    Value used;   // what `flat` was gathered from; cleared after the update, which need not wait for that
    bool kept = true;  // `flat` is there from step to step
  };

  // Always a view, of everything too: it is written apart from the buffer, and joined with it.
  Value part_view(Value flat, const Range& held, const Range& wanted, int32_t block) {
    return view(graph_, flat, wanted.begin - held.begin, Shape({wanted.elems()}), block, Phase::Update);
  }

  UnitGradients reduced(const Unit& unit) {
    UnitGradients g;
    g.range = layout_.own(unit);
    if (keeps_whole_gradients(layout_, data_)) {
      g.whole = gradients_leaf(graph_, unit, data_);
      g.flat = part_view(g.whole, layout_.whole(unit), g.range, unit.block);
    } else {
      g.flat = gradient_part_leaf(graph_, layout_, unit);
    }
    g.flat = sum_over_tensor(unit, g);
    g.flat = sum_tied(unit, g);
    g.flat = sum_split(unit, g);
    return g;
  }

  // On one rank the embedding's share of a tied table is gathered apart, as the stages of a pipeline do.
  Value sum_split(const Unit& unit, const UnitGradients& g) {
    Value flat = g.flat;
    for (const ParamPiece& piece : pieces_in(unit, g.range)) {
      const std::string& name = piece.param->name;
      if (std::find(options_.split.begin(), options_.split.end(), name) == options_.split.end()) continue;
      const Value share = builder_.state(fmt::format("grad:{}{}", name, kEmbeddingPart),
                                         {DType::F32, piece.param->type.shape}, "gradients", "zeros");
      if (options_.together) {  // the unit is this parameter: what is used is the sum, beside both
        const Value flat_share =
            builder_.emit(Op::Reshape, {share}, {{"shape", shape_attr(Shape({unit.elems}))}}, unit.block);
        spent_.insert(spent_.end(), {g.whole, share});
        return builder_.emit(Op::Add, {flat, flat_share}, {}, unit.block);
      }
      const Value mine = view(graph_, flat, piece.range.begin - g.range.begin, piece.param->type.shape,
                              unit.block, Phase::Update);
      const Value sum = builder_.emit(Op::Add, {mine, share}, {}, unit.block);
      const Value stored = builder_.emit(Op::Copy, {sum, mine}, {{"to", "device"}}, unit.block);
      flat = builder_.emit(Op::Join, {flat, stored}, {}, unit.block);
      builder_.clear(share, unit.block);
    }
    return flat;
  }

  // Parameters that every tensor rank holds have seen only its rows.
  Value sum_over_tensor(const Unit& unit, const UnitGradients& g) {
    const Range summed{std::max<int64_t>(0, g.range.begin), std::min(unit.num_summed, g.range.end)};
    const int size = layout_.position().shape.tensor;
    if (size == 1 || summed.begin >= summed.end) return g.flat;
    const Value part = part_view(g.flat, g.range, summed, unit.block);
    const Value sum =
        builder_.emit(Op::AllReduce, {part}, {{"axis", "tensor"}, {"size", int64_t{size}}}, unit.block);
    return builder_.emit(Op::Join, {g.flat, sum}, {}, unit.block);
  }

  // A tied table's gradient is the sum of what the first stage (embedding) and the last one (head) found.
  Value sum_tied(const Unit& unit, const UnitGradients& g) {
    Value flat = g.flat;
    const int last = layout_.position().shape.pipeline - 1;
    for (const ParamPiece& piece : pieces_in(unit, g.range)) {
      if (piece.param->tied.empty()) continue;
      const bool is_first = piece.param->tied == "first";
      const Value mine = part_view(flat, g.range, piece.range, unit.block);
      const Attrs peer{{"axis", "pipeline"}, {"peer", int64_t{is_first ? last : 0}}};
      Attrs incoming = peer;
      incoming.set("dtype", std::string(dtype_name(DType::F32)));
      incoming.set("shape", shape_attr(Shape({piece.range.elems()})));
      if (!is_first) builder_.emit(Op::Send, {mine}, peer, unit.block);
      const Value theirs = builder_.emit(Op::Recv, {}, incoming, unit.block);
      Value total = theirs;
      if (is_first) {
        total = builder_.emit(Op::Add, {theirs, mine}, {}, unit.block);
        builder_.emit(Op::Send, {total}, peer, unit.block);
      }
      const Value stored = builder_.emit(Op::Copy, {total, mine}, {{"to", "device"}}, unit.block);
      flat = builder_.emit(Op::Join, {flat, stored}, {}, unit.block);
    }
    return flat;
  }

  void count_pieces(const Unit& unit, const UnitGradients& g) {
    for (const ParamPiece& piece : pieces_in(unit, g.range)) {
      const bool elsewhere =
          (piece.param->tensor_sum && layout_.position().tensor != 0) || piece.param->tied == "last";
      if (!elsewhere) builder_.count(piece.param->name, part_view(g.flat, g.range, piece.range, unit.block));
    }
  }

  // Gathers run beside the optimizer: the next unit's starts before the last one's are used.
  void update_one_by_one() {
    spread_gradients(0);
    for (size_t u = 0; u < units_.size(); ++u) {
      spread_gradients(u + 1);
      update(*units_[u], gradients_[u]);
    }
  }

  void update_together() {
    std::vector<UpdateBuilder::Group> groups;
    for (size_t u = 0; u < units_.size(); ++u) {
      const Value weights = weights_leaf(graph_, layout_, *units_[u], data_);
      for (UpdateBuilder::Group& group : groups_of(*units_[u], gradients_[u], weights, gradients_[u].flat))
        groups.push_back(std::move(group));
    }
    builder_.optimize(groups, kNoBlock);
    for (Value gradient : spent_) builder_.clear(gradient);
  }

  // Where every rank updates all weights, each needs the whole sum.
  void spread_gradients(size_t u) {
    if (u == gradients_.size() || data_.sharding.optimizer || layout_.ranks() == 1) return;
    const Unit& unit = *units_[u];
    UnitGradients& g = gradients_[u];
    std::vector<Value> inputs = {g.flat};
    if (g.whole.valid()) inputs.push_back(g.whole);
    const Value whole = builder_.emit(Op::AllGather, inputs,
                                      {{"axis", "data"}, {"size", int64_t{layout_.ranks()}}}, unit.block);
    if (!g.whole.valid() && data_.accumulates) g.used = g.flat;
    g.kept = g.whole.valid();
    g.flat = whole;
    g.range = layout_.whole(unit);
  }

  void average(const Node& state) {
    const int size = layout_.ranks();
    if (size == 1) return;
    Node leaf = state;
    leaf.phase = Phase::Update;
    const Value sum = builder_.emit(Op::AllReduce, {graph_.add(std::move(leaf))},
                                    {{"axis", "data"}, {"size", int64_t{size}}}, state.block);
    const Value mean = builder_.emit(Op::Scale, {sum}, {{"factor", 1.0 / size}}, state.block);
    builder_.emit(Op::Copy, {mean, sum}, {{"to", "device"}}, state.block);
  }

  // The optimizer zeroes what it has used, this rank's part; the next step adds to all of it.
  void clear_others(const Unit& unit, const UnitGradients& g) {
    const Range whole = layout_.whole(unit), own = layout_.own(unit);
    for (const Range& range : {Range{whole.begin, own.begin}, Range{own.end, whole.end}}) {
      if (range.elems() > 0) builder_.clear(part_view(g.whole, whole, range, unit.block), unit.block);
    }
  }

  bool on_host() const { return data_.offload_optimizer || data_.offload_weights; }

  // The weights and gradients of a unit, its states and masters, cut into parameters. `w` and `grad` hold
  // the range of `g`.
  std::vector<UpdateBuilder::Group> groups_of(const Unit& unit, const UnitGradients& g, Value w, Value grad) {
    const auto kept = [&](std::string_view kind, std::string_view category, DType dtype,
                          std::string_view init) {
      return builder_.state(fmt::format("{}:{}", kind, unit.name), {dtype, Shape({g.range.elems()})},
                            on_host() ? "host" : category, std::string(init));
    };
    const DType storage = options_.precision.storage;
    std::vector<Value> tensors = {w, grad};
    for (const StateTensor& state : builder_.optimizer().states)
      tensors.push_back(
          kept(state.name, "optimizer", storage == DType::F64 ? DType::F64 : DType::F32, state.init));
    if (options_.precision.masters())
      tensors.push_back(kept("master", "master", master_dtype(storage), "zeros"));
    std::vector<UpdateBuilder::Group> groups;
    for (const ParamPiece& piece : pieces_in(unit, g.range)) {
      UpdateBuilder::Group group;
      check_cut(piece);
      group.decay = builder_.optimizer().decays_rank(piece.param->logical.rank());
      for (Value flat : tensors) group.tensors.push_back(part_view(flat, g.range, piece.range, unit.block));
      groups.push_back(std::move(group));
    }
    return groups;
  }

  void update(const Unit& unit, const UnitGradients& g) {
    const bool offload = on_host();
    const Value weights = weights_leaf(graph_, layout_, unit, data_);
    const Range held = data_.sharding.weights ? layout_.own(unit) : layout_.whole(unit);
    // With the state in host memory, the update runs there: gradients go out, weights come back.
    const Value own_weights = part_view(weights, held, g.range, unit.block);
    const bool weights_move = offload && !data_.offload_weights;
    const Value w = weights_move ? to_host(own_weights, unit) : own_weights;
    const Value grad = offload ? to_host(g.flat, unit) : g.flat;
    if (offload && g.kept && !options_.keep_gradients) builder_.clear(g.flat, unit.block);

    const std::vector<UpdateBuilder::Group> groups = groups_of(unit, g, w, grad);
    std::vector<Value> parts = {w};
    if (!groups.empty()) {  // else only padding is here
      const Value updated = builder_.optimize(groups, unit.block, offload);
      for (size_t i = 0; i < groups.size(); ++i)
        parts.push_back({updated.node, static_cast<int32_t>(i * builder_.group_size())});
    }
    if (g.used.valid()) builder_.clear(g.used, unit.block);
    Value result = builder_.emit(Op::Join, parts, {}, unit.block);
    if (weights_move) result = builder_.emit(Op::Copy, {result, own_weights}, {{"to", "device"}}, unit.block);
    if (data_.once && data_.sharding.optimizer) clear_others(unit, g);
    if (data_.sharding.optimizer && !data_.sharding.weights && layout_.ranks() > 1) {
      builder_.emit(Op::AllGather, {result, weights}, {{"axis", "data"}, {"size", int64_t{layout_.ranks()}}},
                    unit.block);
    }
  }

  // The rule sees at once what it must.
  void check_cut(const ParamPiece& piece) const {
    const Shape& shape = piece.param->type.shape;
    const Granularity granularity = builder_.optimizer().granularity;
    const int64_t grain = granularity == Granularity::Element ? 1
                          : granularity == Granularity::Row   ? shape.last()
                                                              : shape.elems();
    TANDEM_CHECK((piece.range.begin - piece.param->begin) % grain == 0 && piece.range.elems() % grain == 0,
                 "{} is cut finer than {} allows", piece.param->name, builder_.optimizer().name);
  }

  Value to_host(Value value, const Unit& unit) {
    return builder_.emit(Op::Copy, {value}, {{"to", "host"}}, unit.block);
  }

  const UnitLayout& layout_;
  const DataAxisOptions& data_;
  const UpdateOptions& options_;
  UpdateBuilder builder_;
  Graph& graph_;
  std::vector<const Unit*> units_;
  std::vector<UnitGradients> gradients_;  // of each
  std::vector<Value> spent_;              // whose sums were used in their place
};

}  // namespace

Graph build_update(const UnitLayout& layout, const DataAxisOptions& data, const UpdateOptions& options) {
  return UnitUpdate(layout, data, options).run();
}

Graph build_gather(const UnitLayout& layout, const DataAxisOptions& data) {
  Graph graph;
  for (const Unit& unit : layout.units()) {
    const Value weights = weights_leaf(graph, layout, unit, data);
    const Value own =
        view(graph, weights, layout.own(unit).begin, Shape({layout.part(unit)}), unit.block, Phase::Update);
    append(graph, Op::AllGather, {own, weights}, {{"axis", "data"}, {"size", int64_t{layout.ranks()}}},
           unit.block, Phase::Update);
  }
  return graph;
}

}  // namespace tandem
