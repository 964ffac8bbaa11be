// Mean squares that are kept by the rows and columns of whole parameters (optimizers/adafactor.h). Each rank
// sums the squares of the gradients that it has, ranks of the data and tensor axes add these up, and all of
// them keep all of the numbers: rows + cols are few. Directions then take the gradients' place, where they
// are. Every strategy of the data axis sums the same parts in the same order, and has the same bits.
#pragma once

#include <vector>

#include "tandem/compile/update_builder.h"
#include "tandem/ir/factored_parts.h"

namespace tandem {

// Of the state of a unit's parameters, one behind the other.
int64_t factored_elems(const Unit& unit);
// Which tensors "<prefix><parameter>" lie there.
std::vector<Piece> factored_pieces(const UnitLayout& layout, const Unit& unit, std::string_view prefix);

class FactoredDirections {
 public:
  FactoredDirections(UpdateBuilder& builder, const UnitLayout& layout) : builder_(builder), layout_(layout) {}

  // `flat` holds the gradients of `range` of the unit, `state` the numbers of all of it.
  void add(const Unit& unit, Range range, Value flat, Value state);
  // In the order of their addition: what takes the place of each `flat`.
  std::vector<Value> finish();

 private:
  struct Added {
    const Unit* unit;
    Range range;
    Value flat;
    std::vector<Value> states;  // of the parameters
    std::vector<int64_t> firsts;
  };
  struct Pieces {
    std::vector<Value> gradients, states;
    std::vector<FactoredPart> parts;
  };
  // A parameter's numbers, in the order of the sums.
  struct Placed {
    Factors factors;
    Value* state;
  };
  bool is_alone(const UnitParam& param) const;
  void place_sums();
  Pieces pieces_of(const Added& added, bool counted);
  Value sums();
  void move_states();

  UpdateBuilder& builder_;
  const UnitLayout& layout_;
  std::vector<Added> units_;
  std::vector<Placed> placed_;
  int64_t size_ = 0;    // of all sums
  int64_t shared_ = 0;  // of those that all ranks of the tensor axis have
};

}  // namespace tandem
