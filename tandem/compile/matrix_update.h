// Whole matrices in an update (optimizers/muon.h). Ranks cut parameters where the units' parts end; the
// directions of a unit are therefore brought together, and each of its matrices is worked on by one rank of
// the data and tensor axes. Which one does not matter to the result, so that every strategy of the data axis
// has the same bits, and they share the work by its cost.
#pragma once

#include <vector>

#include "tandem/compile/row_sections.h"
#include "tandem/compile/update_builder.h"
#include "tandem/ir/placed_boxes.h"

namespace tandem {

// All of a parameter, or rows of it that are a matrix of their own.
struct UpdateMatrix {
  const UnitParam* param;
  int64_t rows, cols;
  // Where it lies in a buffer of the whole unit, one behind the other of each rank of the tensor axis.
  std::vector<PlacedBox> parts;
  bool mine = true;  // this rank works on it

  int64_t elems() const { return rows * cols; }
  int64_t flops() const;  // of an iteration
};

std::vector<UpdateMatrix> matrices_of(const UnitLayout& layout, const Unit& unit,
                                      const RowSections& sections);

// Deals matrices out in windows of a few units: those that are gathered at the same time.
class MatrixDealer {
 public:
  explicit MatrixDealer(const MeshPosition& at);

  void start() { units_ = largest_ = total_ = 0; }
  void add(const std::vector<UpdateMatrix>& unit);
  bool is_full() const;                                 // there is enough for every rank, or enough to keep
  void deal(const std::vector<UpdateMatrix*>& window);  // says which are `mine`

 private:
  size_t own_;
  std::vector<int64_t> loads_;  // of each rank, so far
  int64_t units_ = 0, largest_ = 0, total_ = 0;
};

// The matrix of the flat buffer with its singular values near one, times what `scale` says.
Value orthogonalized(UpdateBuilder& builder, Value flat, const UpdateMatrix& matrix, MuonScale scale,
                     int32_t block);

}  // namespace tandem
