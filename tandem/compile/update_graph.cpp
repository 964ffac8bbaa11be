#include "tandem/compile/update_graph.h"

#include <algorithm>
#include <functional>
#include <map>

#include "tandem/base/error.h"
#include "tandem/compile/factored_update.h"
#include "tandem/compile/matrix_update.h"
#include "tandem/compile/passes/differentiate.h"
#include "tandem/compile/update_builder.h"
#include "tandem/ir/infer.h"
#include "tandem/optimizers/packed_state.h"

namespace tandem {
namespace {

// The update of the units of one rank.
class UnitUpdate {
 public:
  UnitUpdate(const UnitLayout& layout, const DataAxisOptions& data, const UpdateOptions& options)
      : layout_(layout), data_(data), options_(options), builder_(options), graph_(builder_.graph()) {
    for (const Unit& unit : layout.units()) {
      if (!unit.frozen && !options.untrained.contains(unit.name)) units_.push_back(&unit);
    }
  }

  Graph run() {
    for (const Unit* unit : units_) gradients_.push_back(reduced(*unit));
    for (size_t u = 0; u < units_.size(); ++u) count_pieces(*units_[u], gradients_[u]);
    builder_.finish_norm(layout_.position().shape.world());
    if (optimizer_entry(options_.optimizer).factored) make_directions();
    if (optimizer_entry(options_.optimizer).granularity == Granularity::Tensor) measure_params();
    for (const Node& state : options_.running) builder_.average(state, layout_.ranks());
    std::vector<Window> windows = cut_windows();
    if (!windows.empty()) direct(windows.front());
    if (options_.together) {
      update_together();
    } else {
      update_one_by_one();
    }
    update_matrices(windows);
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

  // Another rank counts for norms what this one holds too.
  bool counts_elsewhere(const UnitParam& param) const {
    return (param.tensor_sum && layout_.position().tensor != 0) || param.tied == "last";
  }

  void count_pieces(const Unit& unit, const UnitGradients& g) {
    for (const ParamPiece& piece : pieces_in(unit, g.range)) {
      if (!counts_elsewhere(*piece.param))
        builder_.count(piece.param->name, part_view(g.flat, g.range, piece.range, unit.block));
    }
  }

  // Norms of whole parameters are sums over the ranks' parts, those of gradients, whatever else a rank holds:
  // every strategy of the data axis sums the same numbers in the same order.
  void measure_params() {
    for (size_t u = 0; u < units_.size(); ++u) {
      const Unit& unit = *units_[u];
      const Held held{data_.sharding.weights ? layout_.own(unit) : layout_.whole(unit),
                      data_.sharding.optimizer ? layout_.own(unit) : layout_.whole(unit)};
      const Value weights = weights_of(unit);
      for (UpdateBuilder::Group& group :
           groups_in(unit, gradients_[u].range, held, weights, gradients_[u].flat)) {
        if (!counts_elsewhere(layout_.param(*layout_.find(group.param)))) builder_.measure(std::move(group));
      }
    }
    builder_.finish_sums(layout_.position().shape.world());
  }

  void make_directions() {
    FactoredDirections directions(builder_, layout_);
    for (size_t u = 0; u < units_.size(); ++u) {
      const Value state = kept_states(*units_[u], factored_elems(*units_[u])).front();
      directions.add(*units_[u], gradients_[u].range, gradients_[u].flat, state);
    }
    const std::vector<Value> made = directions.finish();
    for (size_t u = 0; u < units_.size(); ++u) gradients_[u].flat = made[u];
  }

  OptimizerKind rule_of(const Unit& unit) const {
    return rule_for(options_.optimizer, holds_block_matrices(unit));
  }
  bool by_matrix(const Unit& unit) const {
    return optimizer_entry(rule_of(unit)).granularity == Granularity::Matrix;
  }
  std::vector<size_t> units_by(bool matrix) const {
    std::vector<size_t> found;
    for (size_t u = 0; u < units_.size(); ++u) {
      if (by_matrix(*units_[u]) == matrix) found.push_back(u);
    }
    return found;
  }

  // Gathers run beside the optimizer: the next unit's starts before the last one's are used.
  void update_one_by_one() {
    const std::vector<size_t> list = units_by(false);
    for (size_t i = 0; i < list.size(); ++i) {
      if (i == 0) spread_gradients(list[0]);
      if (i + 1 < list.size()) spread_gradients(list[i + 1]);
      update(*units_[list[i]], gradients_[list[i]]);
    }
  }

  void update_together() {
    std::vector<UpdateBuilder::Group> groups;
    for (size_t u : units_by(false)) {
      const Value weights = weights_of(*units_[u]);
      for (UpdateBuilder::Group& group : groups_of(*units_[u], gradients_[u], weights, gradients_[u].flat))
        groups.push_back(std::move(group));
    }
    if (!groups.empty()) builder_.optimize(rule_for(options_.optimizer, false), groups, kNoBlock);
    for (Value gradient : spent_) builder_.clear(gradient);
  }

  // Units whose matrices are dealt out to the ranks together.
  struct MatrixUnit {
    size_t index;
    std::vector<UpdateMatrix> matrices;
    Value directions = {};  // of the whole unit, and of all ranks of the tensor axis
  };
  using Window = std::vector<MatrixUnit>;

  int workers() const { return layout_.position().shape.data * layout_.position().shape.tensor; }

  std::vector<Window> cut_windows() const {
    MatrixDealer dealer(layout_.position());
    std::vector<Window> windows;
    for (size_t u : units_by(true)) {
      MatrixUnit unit{u, matrices_of(layout_, *units_[u], options_.sections)};
      if (windows.empty() || dealer.is_full()) {
        dealer.start();
        windows.emplace_back();
      }
      dealer.add(unit.matrices);
      windows.back().push_back(std::move(unit));
    }
    for (Window& window : windows) {
      std::vector<UpdateMatrix*> matrices;
      for (MatrixUnit& unit : window) {
        for (UpdateMatrix& matrix : unit.matrices) matrices.push_back(&matrix);
      }
      dealer.deal(matrices);
    }
    return windows;
  }

  // The next window's directions are on their way while this one's are worked on.
  void update_matrices(std::vector<Window>& windows) {
    for (size_t i = 0; i < windows.size(); ++i) {
      if (i > 0 && workers() == 1) direct(windows[i]);
      if (i + 1 < windows.size() && workers() > 1) direct(windows[i + 1]);
      for (MatrixUnit& unit : windows[i]) unit.directions = worked_on(unit);
      for (const MatrixUnit& unit : windows[i]) update_by_matrices(unit);
    }
  }

  void direct(Window& window) {
    for (MatrixUnit& matrix_unit : window) {
      const Unit& unit = *units_[matrix_unit.index];
      spread_gradients(matrix_unit.index);
      const UnitGradients& g = gradients_[matrix_unit.index];
      const Value momentum = kept_states(unit, g.range.elems()).front();
      Value flat = builder_.direction(gradient_of(unit, g), momentum, unit.block, on_host());
      if (on_host()) flat = builder_.emit(Op::Copy, {flat}, {{"to", "device"}}, unit.block);
      if (data_.sharding.optimizer) flat = over_axis(Op::AllGather, Axis::Data, flat, unit);
      matrix_unit.directions = over_axis(Op::AllGather, Axis::Tensor, flat, unit);
    }
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

  // The optimizer zeroes what it has used, this rank's part; the next step adds to all of it.
  void clear_others(const Unit& unit, const UnitGradients& g) {
    const Range whole = layout_.whole(unit), own = layout_.own(unit);
    for (const Range& range : {Range{whole.begin, own.begin}, Range{own.end, whole.end}}) {
      if (range.elems() > 0) builder_.clear(part_view(g.whole, whole, range, unit.block), unit.block);
    }
  }

  bool on_host() const { return data_.offload_optimizer || data_.offload_weights; }

  Value kept(std::string_view kind, std::string_view category, DType dtype, std::string_view init,
             const Unit& unit, int64_t elems) {
    return leaf(fmt::format("{}:{}", kind, unit.name), [&](const std::string& name) {
      return builder_.state(name, {dtype, Shape({elems})}, on_host() ? "host" : category, std::string(init));
    });
  }
  // The leaf of this name, made where it is first asked for.
  Value leaf(const std::string& name, const std::function<Value(const std::string&)>& make) {
    const auto it = leaves_.find(name);
    return it != leaves_.end() ? it->second : leaves_.emplace(name, make(name)).first->second;
  }
  Value weights_of(const Unit& unit) {
    return leaf("weights:" + unit.name,
                [&](const std::string&) { return weights_leaf(graph_, layout_, unit, data_); });
  }
  std::vector<Value> kept_states(const Unit& unit, int64_t elems) {
    std::vector<Value> states;
    for (const StateTensor& state : optimizer_entry(rule_of(unit)).states)
      states.push_back(kept(state.name, "optimizer", builder_.state_dtype(), state.init, unit, elems));
    return states;
  }

  // Of states in 8 bits, one for each block of them.
  std::vector<Value> kept_scales(const Unit& unit, int64_t elems) {
    std::vector<Value> scales;
    if (options_.state_type != StateType::Int8) return scales;
    for (const StateTensor& state : optimizer_entry(rule_of(unit)).states)
      scales.push_back(
          kept(scale_name(state.name), "optimizer", DType::F32, "zeros", unit, num_state_blocks(elems)));
    return scales;
  }
  // Those of a piece, which begins with a block.
  Value scales_view(Value scales, const Range& held, const Range& wanted, int32_t block) {
    const int64_t begin = wanted.begin - held.begin;
    TANDEM_CHECK(begin % kStateBlock == 0, "a block of states is cut at {}", begin);
    return view(graph_, scales, begin / kStateBlock, Shape({num_state_blocks(wanted.elems())}), block,
                Phase::Update);
  }
  Value masters(const Unit& unit, int64_t elems) {
    return kept("master", "master", type_of_masters(options_.precision, options_.optimizer), "zeros", unit,
                elems);
  }
  bool decays(const UnitParam& param, const Unit& unit) const {
    return optimizer_entry(rule_of(unit)).decays_rank(param.logical.rank());
  }

  // What of a unit `w` holds, and what states and masters do.
  struct Held {
    Range weights, states;
  };
  // The weights and gradients of a unit, its states and masters, cut into parameters. `w` and `grad` hold
  // the range of `g`.
  std::vector<UpdateBuilder::Group> groups_of(const Unit& unit, const UnitGradients& g, Value w, Value grad) {
    return groups_in(unit, g.range, {g.range, g.range}, w, grad);
  }
  // Of `range` of the unit, of which states hold `held`, without its tensors.
  UpdateBuilder::Group group_of(const Unit& unit, const UnitParam& param, const Range& held,
                                const Range& range) {
    UpdateBuilder::Group group{{}, decays(param, unit), param.name, range.begin - param.begin, param.factors,
                               {}};
    if (optimizer_entry(rule_of(unit)).factored) group.factors.elems = param.logical.elems();
    const DType wide = options_.precision.storage == DType::F64 ? DType::F64 : DType::F32;
    if (options_.ema != 0)
      group.average =
          part_view(kept(kEmaState, "optimizer", wide, "zeros", unit, held.elems()), held, range, unit.block);
    return group;
  }
  // Likewise, of `range`, which is what `grad` holds.
  std::vector<UpdateBuilder::Group> groups_in(const Unit& unit, const Range& range, const Held& held, Value w,
                                              Value grad) {
    const int64_t elems = held.states.elems();
    const bool stateless = optimizer_entry(rule_of(unit)).takes_directions();
    const std::vector<Value> states = stateless ? std::vector<Value>() : kept_states(unit, elems);
    const std::vector<Value> scales = stateless ? std::vector<Value>() : kept_scales(unit, elems);
    const Value master = has_masters(options_.precision, options_.optimizer) ? masters(unit, elems) : Value{};
    std::vector<UpdateBuilder::Group> groups;
    for (const ParamPiece& piece : pieces_in(unit, range)) {
      UpdateBuilder::Group group = group_of(unit, *piece.param, held.states, piece.range);
      const auto add = [&](Value flat, const Range& from) {
        group.tensors.push_back(part_view(flat, from, piece.range, unit.block));
      };
      add(w, held.weights);
      add(grad, range);
      for (Value flat : states) add(flat, held.states);
      for (Value flat : scales)
        group.tensors.push_back(scales_view(flat, held.states, piece.range, unit.block));
      if (master.valid()) add(master, held.states);
      groups.push_back(std::move(group));
    }
    return groups;
  }

  // With the state in host memory, the update runs there: gradients go out, weights come back.
  Value gradient_of(const Unit& unit, const UnitGradients& g) {
    if (!on_host()) return g.flat;
    const Value grad = to_host(g.flat, unit);
    if (g.kept && !options_.keep_gradients) builder_.clear(g.flat, unit.block);
    return grad;
  }

  void update(const Unit& unit, const UnitGradients& g) {
    apply(unit, g, [&](Value w) { return groups_of(unit, g, w, gradient_of(unit, g)); });
  }

  // Runs the optimizer's op on the groups that are made of the weights here.
  void apply(const Unit& unit, const UnitGradients& g,
             const std::function<std::vector<UpdateBuilder::Group>(Value w)>& make_groups) {
    const Value weights = weights_of(unit);
    const Range held = data_.sharding.weights ? layout_.own(unit) : layout_.whole(unit);
    const Value own_weights = part_view(weights, held, g.range, unit.block);
    const bool weights_move = on_host() && !data_.offload_weights;
    const Value w = weights_move ? to_host(own_weights, unit) : own_weights;

    const std::vector<UpdateBuilder::Group> groups = make_groups(w);
    std::vector<Value> parts = {w};
    if (!groups.empty()) {  // else only padding is here
      const OptimizerKind rule = rule_of(unit);
      const Value updated = builder_.optimize(rule, groups, unit.block, on_host());
      for (size_t i = 0; i < groups.size(); ++i)
        parts.push_back({updated.node, static_cast<int32_t>(i * builder_.group_size(rule))});
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

  Value over_axis(Op op, Axis axis, Value value, const Unit& unit) {
    const int64_t size = layout_.position().size(axis);
    if (size == 1) return value;
    Attrs attrs{{"axis", std::string(axis_name(axis))}, {"size", size}};
    if (op == Op::ReduceScatter) attrs.set("accumulate", int64_t{0});
    return builder_.emit(op, {value}, std::move(attrs), unit.block);
  }

  // What this rank makes of the directions of its share of the matrices; of all, where it is the only one.
  // Then the shares of all ranks, which wrote each into zeros, so that their sum is exact.
  Value worked_on(const MatrixUnit& item) {
    const Unit& unit = *units_[item.index];
    if (workers() == 1) return item.directions;
    const TensorType type = graph_.type(item.directions);
    Value shares = builder_.emit(
        Op::Zeros, {}, {{"dtype", std::string(dtype_name(type.dtype))}, {"shape", shape_attr(type.shape)}},
        unit.block);
    for (const UpdateMatrix& matrix : item.matrices) {
      if (!matrix.mine) continue;
      const Value done = orthogonalized(builder_, item.directions, matrix, options_.muon_scale, unit.block);
      shares =
          builder_.emit(Op::PlaceMatrix, {shares, done}, {{"parts", print_placed(matrix.parts)}}, unit.block);
    }
    const Value own = over_axis(Op::ReduceScatter, Axis::Tensor, shares, unit);
    return over_axis(data_.sharding.optimizer ? Op::ReduceScatter : Op::AllReduce, Axis::Data, own, unit);
  }

  void update_by_matrices(const MatrixUnit& item) {
    const Unit& unit = *units_[item.index];
    const UnitGradients& g = gradients_[item.index];
    const auto here = [&](Value value) { return on_host() ? to_host(value, unit) : value; };
    if (workers() > 1)
      return apply(unit, g, [&](Value w) { return groups_of(unit, g, w, here(item.directions)); });
    apply(unit, g, [&](Value w) {
      std::vector<UpdateBuilder::Group> groups;
      const Value master =
          has_masters(options_.precision, options_.optimizer) ? masters(unit, g.range.elems()) : Value{};
      for (const UpdateMatrix& matrix : item.matrices) {
        const Value done = orthogonalized(builder_, item.directions, matrix, options_.muon_scale, unit.block);
        const Range range{matrix.parts[0].offset, matrix.parts[0].offset + matrix.elems()};
        const Value flat = builder_.emit(Op::Reshape, {here(done)},
                                         {{"shape", shape_attr(Shape({matrix.elems()}))}}, unit.block);
        UpdateBuilder::Group group = group_of(unit, *matrix.param, g.range, range);
        group.tensors = {part_view(w, g.range, range, unit.block), flat};
        if (master.valid()) group.tensors.push_back(part_view(master, g.range, range, unit.block));
        groups.push_back(std::move(group));
      }
      return groups;
    });
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
  std::map<std::string, Value> leaves_;   // weights, states and masters, by name
};

}  // namespace

Graph build_update(const UnitLayout& layout, const DataAxisOptions& data, const UpdateOptions& options) {
  return UnitUpdate(layout, data, options).run();
}

}  // namespace tandem
