// A rectangle of a tensor in its canonical two-dimensional form, [first dim, product of the others]; a
// tensor of one dim is [n, 1]. How ranks say which part of a tensor they hold.
#pragma once

#include <cstdint>

#include "tandem/base/shape.h"

namespace tandem {

struct Box {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t col_begin = 0;
  int64_t col_end = 0;

  int64_t rows() const { return row_end - row_begin; }
  int64_t cols() const { return col_end - col_begin; }
  int64_t elems() const { return rows() * cols(); }
  bool operator==(const Box&) const = default;
};

// All of a tensor; a scalar is [1, 1].
inline Box whole_box(const Shape& shape) {
  const int64_t rows = shape.rank() == 0 ? 1 : shape[0];
  return {0, rows, 0, rows == 0 ? 0 : shape.elems() / rows};
}

}  // namespace tandem
