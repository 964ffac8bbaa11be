// How the parameters of a rank lie in memory. The parameters of a unit (a block, or what comes before the
// first or after the last one) form one flat buffer, which the ranks of the data axis cut into equal parts:
// one collective serves a whole unit, and every strategy sums in the same places. Where nothing is sent, each
// parameter is a unit of its own, so that memory is filled best.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "tandem/base/mesh.h"
#include "tandem/compile/executable.h"
#include "tandem/ir/graph.h"

namespace tandem {

// Every parameter begins at a multiple of this many elements: a cache line in fp32 and in 16 bits.
inline constexpr int64_t kUnitAlignment = 32;

struct UnitParam {
  std::string name;
  TensorType type;         // on this rank, after the tensor axis has split it
  Shape logical;           // of the whole tensor
  std::vector<Box> boxes;  // what of it is here, in order
  std::string init;
  std::string tied;         // "first" or "last": the other end of the pipeline holds it too
  bool tensor_sum = false;  // its gradient is a sum over the tensor axis
  GroupFactors factors;     // of its learning rate and weight decay
  int64_t begin = 0;        // element in the unit
  int64_t end() const { return begin + type.shape.elems(); }
};

struct Unit {
  std::string
      name;  // "blocks.3", "blocks.3.matrices", "first", "last", "tied", with ".frozen"; or a parameter's
  int32_t block = kNoBlock;
  bool frozen = false;            // no gradients, masters or states: only weights
  DType gradients = DType::F32;   // in which a pass makes them
  std::vector<UnitParam> params;  // those with tensor_sum first
  int64_t elems = 0;              // padded
  int64_t num_summed = 0;         // elements of the parameters with tensor_sum, with padding
};

// Whether all of it are matrices of a block, which an optimizer may treat unlike all else.
bool holds_block_matrices(const Unit& unit);

// Elements [begin, end) of a unit.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t elems() const { return end - begin; }
};

// What units are made of. A unit has one type of gradients, and is gathered in one type.
struct UnitKinds {
  bool each_apart = false;              // every parameter is a unit, without padding
  bool matrices_apart = false;          // those of a block form a unit of their own
  DType matrix_gradients = DType::F32;  // of those
  int64_t alignment = kUnitAlignment;   // of parameters and of ranks' parts, unless each is apart
};

class UnitLayout {
 public:
  UnitLayout() = default;
  // Of the parameters of one or several graphs (the chunks of a pipeline rank). Units are padded to the size
  // they have in `widest`: all ranks of the tensor axis must cut theirs at the same places.
  UnitLayout(std::span<const Graph> graphs, const MeshPosition& at, const UnitLayout* widest = nullptr,
             const UnitKinds& kinds = {});

  struct Place {
    size_t unit;
    size_t param;
  };
  const std::vector<Unit>& units() const { return units_; }
  const Place* find(const std::string& param) const;
  const UnitParam& param(const Place& place) const { return units_[place.unit].params[place.param]; }
  const MeshPosition& position() const { return at_; }
  int ranks() const { return at_.shape.data; }
  DType storage() const { return storage_; }

  int64_t part(const Unit& unit) const { return unit.elems / ranks(); }
  Range whole(const Unit& unit) const { return {0, unit.elems}; }
  Range own(const Unit& unit) const { return {at_.data * part(unit), (at_.data + 1) * part(unit)}; }

 private:
  MeshPosition at_;
  DType storage_ = DType::F32;
  std::vector<Unit> units_;
  std::map<std::string, Place> places_;
};

// What of one parameter lies in a range of its unit.
struct ParamPiece {
  const UnitParam* param;
  Range range;  // elements of the unit
};
std::vector<ParamPiece> pieces_in(const Unit& unit, Range range);

// Elements [begin, end) of the local tensor as rectangles of the logical one.
std::vector<Box> logical_boxes(const UnitParam& param, int64_t begin, int64_t end);

// The same as parts of logical tensors "<prefix><parameter>" in a buffer that holds `range` of the unit;
// owned where `own` and the other axes say so. `starts` false: everything starts at zero.
std::vector<Piece> logical_pieces(const UnitLayout& layout, const Unit& unit, Range range,
                                  std::string_view prefix, bool starts);

std::vector<Box> parse_boxes(std::string_view text);  // "0:64,0:384;128:192,0:384"

}  // namespace tandem
