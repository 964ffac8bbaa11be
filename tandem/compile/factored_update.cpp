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
  Added added{&unit, range, flat, {}, {}};
  int64_t offset = 0;
  for (const UnitParam& param : unit.params) {
    const Factors factors = factors_of(param.logical);
    added.states.push_back(
        view(builder_.graph(), state, offset, Shape({factors.size()}), unit.block, Phase::Update));
    added.firsts.push_back(size_);
    factors_.push_back(factors);
    offset += factors.size();
    size_ += factors.size();
  }
  units_.push_back(std::move(added));
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
  for (Axis axis : {Axis::Tensor, Axis::Data}) {
    const int64_t size = layout_.position().size(axis);
    if (size > 1)
      sums = builder_.emit(Op::AllReduce, {sums}, {{"axis", std::string(axis_name(axis))}, {"size", size}});
  }
  return sums;
}

void FactoredDirections::move_states() {
  std::vector<Value> inputs = builder_.scalars();
  inputs.push_back(sums());
  for (const Added& added : units_) inputs.insert(inputs.end(), added.states.begin(), added.states.end());
  const Value moved = builder_.emit(Op::FactorMoments, inputs, {{"factors", print_factors(factors_)}});
  int32_t next = 0;
  for (Added& added : units_) {
    for (Value& state : added.states) state = {moved.node, next++};
  }
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
