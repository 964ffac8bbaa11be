#include "tandem/compile/matrix_update.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

constexpr int64_t kMostUnits = 4;  // of a window, whose directions are in memory at the same time

// What another rank of the tensor axis has, where this one has `box`: as many rows, or columns, further on.
Box box_at(const Box& box, const Box& whole, int64_t ranks_on) {
  Box moved = box;
  if (box.cols() < whole.cols()) {
    moved.col_begin += ranks_on * box.cols();
    moved.col_end += ranks_on * box.cols();
  } else {
    moved.row_begin += ranks_on * box.rows();
    moved.row_end += ranks_on * box.rows();
  }
  return moved;
}

// What of `box` are rows [begin, end), as rows of those; `offset` is where the box lies.
void add_rows(const Box& box, int64_t offset, int64_t begin, int64_t end, std::vector<PlacedBox>& parts) {
  const int64_t first = std::max(box.row_begin, begin), last = std::min(box.row_end, end);
  if (first >= last) return;
  parts.push_back({offset + (first - box.row_begin) * box.cols(),
                   {first - begin, last - begin, box.col_begin, box.col_end}});
}

}  // namespace

int64_t UpdateMatrix::flops() const {
  const int64_t small = std::min(rows, cols), large = std::max(rows, cols);
  return 2 * small * small * (2 * large + small);
}

std::vector<UpdateMatrix> matrices_of(const UnitLayout& layout, const Unit& unit,
                                      const RowSections& sections) {
  const MeshPosition& at = layout.position();
  std::vector<UpdateMatrix> matrices;
  for (const UnitParam& param : unit.params) {
    const Box whole = whole_box(param.logical);
    const auto it = sections.find(param.name);
    const std::vector<int64_t> rows = it == sections.end() ? std::vector{whole.rows()} : it->second;
    int64_t begin = 0;
    for (int64_t count : rows) {
      UpdateMatrix matrix{&param, count, whole.cols(), {}};
      for (int rank = 0; rank < at.shape.tensor; ++rank) {
        int64_t offset = rank * unit.elems + param.begin;
        for (const Box& box : param.boxes) {
          add_rows(box_at(box, whole, rank - at.tensor), offset, begin, begin + count, matrix.parts);
          offset += box.elems();
        }
      }
      int64_t elems = 0;
      for (const PlacedBox& part : matrix.parts) elems += part.box.elems();
      TANDEM_CHECK(elems == matrix.elems(), "{} of {} elements of {}", elems, matrix.elems(), param.name);
      matrices.push_back(std::move(matrix));
      begin += count;
    }
  }
  return matrices;
}

MatrixDealer::MatrixDealer(const MeshPosition& at)
    : own_(static_cast<size_t>(at.data * at.shape.tensor + at.tensor)),
      loads_(static_cast<size_t>(at.shape.data * at.shape.tensor)) {}

void MatrixDealer::add(const std::vector<UpdateMatrix>& unit) {
  ++units_;
  for (const UpdateMatrix& matrix : unit) {
    largest_ = std::max(largest_, matrix.flops());
    total_ += matrix.flops();
  }
}

bool MatrixDealer::is_full() const {
  return units_ >= kMostUnits || total_ >= largest_ * static_cast<int64_t>(loads_.size());
}

void MatrixDealer::deal(const std::vector<UpdateMatrix*>& window) {
  std::vector<UpdateMatrix*> order = window;
  std::stable_sort(order.begin(), order.end(),
                   [](const UpdateMatrix* a, const UpdateMatrix* b) { return a->flops() > b->flops(); });
  for (UpdateMatrix* matrix : order) {
    const auto least = std::min_element(loads_.begin(), loads_.end());
    *least += matrix->flops();
    matrix->mine = static_cast<size_t>(least - loads_.begin()) == own_;
  }
}

Value orthogonalized(UpdateBuilder& builder, Value flat, const UpdateMatrix& matrix, MuonScale scale,
                     int32_t block) {
  const auto product = [&](Value a, Value b, int64_t trans_a, int64_t trans_b) {
    return builder.emit(Op::Matmul, {a, b}, {{"trans_a", trans_a}, {"trans_b", trans_b}}, block);
  };
  const auto weighted = [&](double p, Value a, double q, Value b) {
    return builder.emit(Op::WeightedSum, {a, b}, {{"p", p}, {"q", q}}, block);
  };
  const bool wide = matrix.rows <= matrix.cols;
  const double factor =
      Muon::scale(scale, static_cast<double>(matrix.rows), static_cast<double>(matrix.cols));
  Value x = builder.emit(Op::NormalizeMatrix, {flat},
                         {{"parts", print_placed(matrix.parts)},
                          {"shape", shape_attr(Shape({matrix.rows, matrix.cols}))},
                          {"eps", Muon::kEps}},
                         block);
  for (int i = 0; i < Muon::kIterations; ++i) {
    // The smaller of x x^T and x^T x, on its side of x.
    const Value square = wide ? product(x, x, 0, 1) : product(x, x, 1, 0);
    const Value inner = weighted(Muon::kB, square, Muon::kC, product(square, square, 0, 0));
    const Value moved = wide ? product(inner, x, 0, 0) : product(x, inner, 0, 0);
    const double last = i + 1 == Muon::kIterations ? factor : 1;
    x = weighted(last * Muon::kA, x, last, moved);
  }
  return x;
}

}  // namespace tandem
