#include "tandem/checkpoint/boxes.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {

bool contains(const Box& outer, const Box& inner) {
  return inner.row_begin >= outer.row_begin && inner.row_begin <= inner.row_end &&
         inner.row_end <= outer.row_end && inner.col_begin >= outer.col_begin &&
         inner.col_begin <= inner.col_end && inner.col_end <= outer.col_end;
}

Box intersect(const Box& a, const Box& b) {
  Box box{std::max(a.row_begin, b.row_begin), std::min(a.row_end, b.row_end),
          std::max(a.col_begin, b.col_begin), std::min(a.col_end, b.col_end)};
  if (box.row_begin >= box.row_end || box.col_begin >= box.col_end) return {};
  return box;
}

std::string to_string(const Box& box) {
  return fmt::format("rows {}:{}, cols {}:{}", box.row_begin, box.row_end, box.col_begin, box.col_end);
}

std::optional<std::pair<Box, Box>> find_overlap(std::vector<Box> boxes) {
  std::erase_if(boxes, [](const Box& box) { return box.elems() == 0; });
  std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.row_begin < b.row_begin; });
  // Sorted by their first rows, only boxes that start before this one ends can meet it.
  for (auto a = boxes.begin(); a != boxes.end(); ++a) {
    for (auto b = a + 1; b != boxes.end() && b->row_begin < a->row_end; ++b) {
      if (intersect(*a, *b).elems() > 0) return std::pair(*a, *b);
    }
  }
  return std::nullopt;
}

}  // namespace tandem
