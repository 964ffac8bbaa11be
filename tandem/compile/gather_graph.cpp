#include <fmt/format.h>

#include "tandem/base/split_float.h"
#include "tandem/compile/update_graph.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

Value state_leaf(Graph& graph, std::string_view kind, std::string_view category, const Unit& unit,
                 int64_t elems) {
  const Attrs attrs{{"category", std::string(category)}, {"init", "zeros"}};
  const std::string name = fmt::format("{}:{}", kind, unit.name);
  return graph.add({Op::State, {}, attrs, {{DType::F32, Shape({elems})}}, kNoBlock, Phase::Update, name});
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
  const bool in_parts = data.sharding.optimizer && !data.sharding.weights && layout.ranks() > 1;
  Value share;
  if (entry.averages)
    share = graph.add({Op::Input, {}, {}, {{DType::F32, Shape({1})}}, kNoBlock, Phase::Update, "share"});
  for (const Unit& unit : layout.units()) {
    if (unit.frozen) continue;  // restored whole
    const bool blends = entry.averages && !untrained.contains(unit.name);
    if (!in_parts && !blends) continue;
    const Value weights = weights_leaf(graph, layout, unit, data);
    const Range held = data.sharding.weights ? layout.own(unit) : layout.whole(unit);
    const Range made = data.sharding.optimizer ? layout.own(unit) : layout.whole(unit);
    Value own =
        view(graph, weights, made.begin - held.begin, Shape({made.elems()}), unit.block, Phase::Update);
    if (blends) {
      const Value master = state_leaf(graph, "master", "master", unit, made.elems());
      const Value lead = state_leaf(graph, entry.states[0].name, "optimizer", unit, made.elems());
      own = append(graph, Op::BlendWeights, {share, own, master, lead}, {}, unit.block, Phase::Update);
    }
    if (in_parts)
      append(graph, Op::AllGather, {own, weights}, {{"axis", "data"}, {"size", int64_t{layout.ranks()}}},
             unit.block, Phase::Update);
  }
  return graph;
}

}  // namespace tandem
