#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/split_float.h"
#include "tandem/compile/update_graph.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

Value state_leaf(Graph& graph, std::string_view kind, std::string_view category, const Unit& unit,
                 int64_t elems, DType dtype = DType::F32) {
  const Attrs attrs{{"category", std::string(category)}, {"init", "zeros"}};
  const std::string name = fmt::format("{}:{}", kind, unit.name);
  return graph.add({Op::State, {}, attrs, {{dtype, Shape({elems})}}, kNoBlock, Phase::Update, name});
}

// Ranks update parts of weights that lie whole on each of them.
bool are_updated_in_parts(const UnitLayout& layout, const DataAxisOptions& data) {
  return data.sharding.optimizer && !data.sharding.weights && layout.ranks() > 1;
}

// The weights of a unit, and what of them this rank updates.
struct OwnWeights {
  Value all, own;
  int64_t elems = 0;    // of `own`
  bool padding = true;  // and nothing else is in `own`: no state belongs to it
};
OwnWeights own_weights(Graph& graph, const UnitLayout& layout, const Unit& unit,
                       const DataAxisOptions& data) {
  const Range held = data.sharding.weights ? layout.own(unit) : layout.whole(unit);
  const Range made = data.sharding.optimizer ? layout.own(unit) : layout.whole(unit);
  const Value all = weights_leaf(graph, layout, unit, data);
  const bool padding = std::none_of(unit.params.begin(), unit.params.end(), [&](const UnitParam& param) {
    return param.begin < made.end && made.begin < param.end();
  });
  return {all, view(graph, all, made.begin - held.begin, Shape({made.elems()}), unit.block, Phase::Update),
          made.elems(), padding};
}

void gather_weights(Graph& graph, const UnitLayout& layout, const Unit& unit, Value own, Value all) {
  append(graph, Op::AllGather, {own, all}, {{"axis", "data"}, {"size", int64_t{layout.ranks()}}}, unit.block,
         Phase::Update);
}

}  // namespace

bool has_masters(const PrecisionPolicy& precision, OptimizerKind optimizer) {
  return precision.masters() || optimizer_entry(optimizer).averages;
}

DType type_of_masters(const PrecisionPolicy& precision, OptimizerKind optimizer) {
  return optimizer_entry(optimizer).averages ? DType::F32 : master_dtype(precision.storage);
}

Graph build_gather(const UnitLayout& layout, const DataAxisOptions& data, OptimizerKind optimizer,
                   const std::set<std::string>& untrained) {
  Graph graph;
  const OptimizerEntry& entry = optimizer_entry(optimizer);
  const bool in_parts = are_updated_in_parts(layout, data);
  Value share;
  if (entry.averages)
    share = graph.add({Op::Input, {}, {}, {{DType::F32, Shape({1})}}, kNoBlock, Phase::Update, "share"});
  for (const Unit& unit : layout.units()) {
    if (unit.frozen) continue;  // restored whole
    const bool blends = entry.averages && !untrained.contains(unit.name);
    if (!in_parts && !blends) continue;
    auto [weights, own, elems, padding] = own_weights(graph, layout, unit, data);
    if (blends && !padding) {
      const Value master = state_leaf(graph, "master", "master", unit, elems);
      const Value lead = state_leaf(graph, entry.states[0].name, "optimizer", unit, elems);
      own = append(graph, Op::BlendWeights, {share, own, master, lead}, {}, unit.block, Phase::Update);
    }
    if (in_parts) gather_weights(graph, layout, unit, own, weights);
  }
  return graph;
}

Graph build_exchange(const UnitLayout& layout, const DataAxisOptions& data, const PrecisionPolicy& precision,
                     const std::set<std::string>& untrained) {
  Graph graph;
  const bool on_host = data.offload_optimizer || data.offload_weights;
  const DType wide = precision.storage == DType::F64 ? DType::F64 : DType::F32;
  for (const Unit& unit : layout.units()) {
    if (unit.frozen || untrained.contains(unit.name)) continue;
    const auto copy = [&](std::vector<Value> from, std::string_view to) {
      return append(graph, Op::Copy, std::move(from), {{"to", std::string(to)}}, unit.block, Phase::Update);
    };
    const auto [weights, own, elems, padding] = own_weights(graph, layout, unit, data);
    const bool in_parts = are_updated_in_parts(layout, data);
    if (padding) {
      if (in_parts) gather_weights(graph, layout, unit, own, weights);
      continue;
    }
    const bool moves = on_host && !data.offload_weights;
    std::vector<Value> places = {
        moves ? copy({own}, "host") : own,
        state_leaf(graph, kEmaState, on_host ? "host" : "optimizer", unit, elems, wide)};
    if (precision.masters())
      places.push_back(state_leaf(graph, "master", on_host ? "host" : "master", unit, elems,
                                  master_dtype(precision.storage)));
    Value shown = append(graph, Op::ExchangeWeights, places, {{"masters", int64_t{precision.masters()}}},
                         unit.block, Phase::Update);
    if (moves) shown = copy({shown, own}, "device");
    if (in_parts) gather_weights(graph, layout, unit, shown, weights);
  }
  return graph;
}

}  // namespace tandem
