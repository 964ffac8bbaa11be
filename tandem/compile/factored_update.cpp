#include "tandem/compile/factored_update.h"

#include "tandem/ir/infer.h"

namespace tandem {

int64_t factored_elems(const Unit& unit) {
  int64_t elems = 0;
  for (const UnitParam& param : unit.params) elems += factors_of(param.logical).size();
  return elems;
}

std::vector<Piece> factored_pieces(const UnitLayout& layout, const Unit& unit, std::string_view prefix) {
  const MeshPosition& at = layout.position();
  std::vector<Piece> pieces;
  int64_t offset = 0;
  for (const UnitParam& param : unit.params) {
    const Shape shape({factors_of(param.logical).size()});
    const bool owned = at.data == 0 && at.tensor == 0 && param.tied != "last";
    pieces.push_back({std::string(prefix) + param.name, shape, whole_box(shape), offset, "zeros", owned});
    offset += shape.elems();
  }
  return pieces;
}

void FactoredDirections::add(const Unit& unit, Range range, Value flat, Value state) {
  Added added{&unit, range, flat, {}, std::vector<int64_t>(unit.params.size())};
  int64_t offset = 0;
  for (const UnitParam& param : unit.params) {
    const int64_t size = factors_of(param.logical).size();
    added.states.push_back(view(builder_.graph(), state, offset, Shape({size}), unit.block, Phase::Update));
    offset += size;
  }
  units_.push_back(std::move(added));
}

// Positions and biases of split rows lie on tensor rank 0 alone, whole.
bool FactoredDirections::is_alone(const UnitParam& param) const {
  int64_t here = 0;
  for (const Box& box : param.boxes) here += box.elems();
  return layout_.position().shape.tensor > 1 && !param.tensor_sum && here == param.logical.elems();
}

// What all ranks of the tensor axis hold comes first, at the same places on each of them.
void FactoredDirections::place_sums() {
  for (const bool alone : {false, true}) {
    for (Added& added : units_) {
      for (size_t i = 0; i < added.unit->params.size(); ++i) {
        const UnitParam& param = added.unit->params[i];
        if (is_alone(param) != alone) continue;
        added.firsts[i] = size_;
        placed_.push_back({factors_of(param.logical), &added.states[i]});
        size_ += placed_.back().factors.size();
      }
    }
    if (!alone) shared_ = size_;
  }
}

// `counted`: without what another rank of the tensor axis sums too.
FactoredDirections::Pieces FactoredDirections::pieces_of(const Added& added, bool counted) {
  Pieces pieces;
  for (const ParamPiece& piece : pieces_in(*added.unit, added.range)) {
    const UnitParam& param = *piece.param;
    if (counted && param.tensor_sum && layout_.position().tensor != 0) continue;
    const auto index = static_cast<size_t>(&param - added.unit->params.data());
    FactoredPart part{added.firsts[index], factors_of(param.logical), {}};
    int64_t offset = 0;
    for (const Box& box :
         logical_boxes(param, piece.range.begin - param.begin, piece.range.end - param.begin)) {
      part.boxes.push_back({offset, box});
      offset += box.elems();
    }
    if (part.boxes.empty()) continue;  // padding
    pieces.gradients.push_back(view(builder_.graph(), added.flat, piece.range.begin - added.range.begin,
                                    Shape({piece.range.elems()}), added.unit->block, Phase::Update));
    pieces.states.push_back(added.states[index]);
    pieces.parts.push_back(std::move(part));
  }
  return pieces;
}

Value FactoredDirections::sums() {
  std::vector<Value> inputs = builder_.scalars();
  std::vector<FactoredPart> parts;
  for (const Added& added : units_) {
    Pieces pieces = pieces_of(added, true);
    inputs.insert(inputs.end(), pieces.gradients.begin(), pieces.gradients.end());
    parts.insert(parts.end(), pieces.parts.begin(), pieces.parts.end());
  }
  Value sums = builder_.emit(Op::FactorSums, inputs, {{"parts", print_factored(parts)}, {"size", size_}});
  const auto over = [&](Axis axis, Value part) {
    const int64_t size = layout_.position().size(axis);
    return builder_.emit(Op::AllReduce, {part}, {{"axis", std::string(axis_name(axis))}, {"size", size}});
  };
  if (layout_.position().shape.tensor > 1) {
    const Value shared = view(builder_.graph(), sums, 0, Shape({shared_}), kNoBlock, Phase::Update);
    sums = builder_.emit(Op::Join, {sums, over(Axis::Tensor, shared)});
  }
  return layout_.ranks() > 1 ? over(Axis::Data, sums) : sums;
}

void FactoredDirections::move_states() {
  place_sums();
  std::vector<Value> inputs = builder_.scalars();
  inputs.push_back(sums());
  std::vector<Factors> factors;
  for (const Placed& placed : placed_) {
    inputs.push_back(*placed.state);
    factors.push_back(placed.factors);
  }
  const Value moved = builder_.emit(Op::FactorMoments, inputs, {{"factors", print_factors(factors)}});
  int32_t next = 0;
  for (const Placed& placed : placed_) *placed.state = {moved.node, next++};
}

std::vector<Value> FactoredDirections::finish() {
  move_states();
  std::vector<Value> flats;
  for (const Added& added : units_) {
    const Pieces pieces = pieces_of(added, false);
    flats.push_back(added.flat);
    if (pieces.parts.empty()) continue;
    std::vector<Value> inputs = builder_.scalars();
    for (size_t i = 0; i < pieces.parts.size(); ++i)
      inputs.insert(inputs.end(), {pieces.gradients[i], pieces.states[i]});
    const Value made = builder_.emit(Op::FactorDirections, inputs, {{"parts", print_factored(pieces.parts)}},
                                     added.unit->block);
    std::vector<Value> parts = {added.flat};
    for (size_t i = 0; i < pieces.parts.size(); ++i)
      parts.push_back({made.node, static_cast<int32_t>(2 * i)});
    flats.back() = builder_.emit(Op::Join, parts, {}, added.unit->block);
  }
  return flats;
}

}  // namespace tandem
