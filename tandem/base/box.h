// A rectangle of a tensor in its canonical two-dimensional form, [first dim, product of the others]; a
// tensor of one dim is [n, 1]. How ranks say which part of a tensor they hold.
#pragma once

#include <cstdint>

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

}  // namespace tandem
