// A tensor in parts of bounded size, in order: for readers that look at every element once.
#pragma once

#include <algorithm>
#include <vector>

#include "tandem/checkpoint/manifest.h"

namespace tandem {

// Together they are the whole tensor, row by row. Where a checkpoint has no digests of blocks, each look at a
// shard reads all of it, so there is only one part then.
inline std::vector<Box> bands_of(const TensorEntry& tensor, bool has_blocks) {
  constexpr int64_t kBandBytes = int64_t{8} << 20;
  const Box whole = whole_box(tensor.shape);
  const int64_t most =
      has_blocks ? kBandBytes / dtype_bytes(tensor.dtype) : std::max<int64_t>(1, whole.elems());
  const int64_t cols = std::min(most, whole.cols());
  const int64_t rows = cols < whole.cols() ? 1 : std::max<int64_t>(1, most / std::max<int64_t>(1, cols));
  std::vector<Box> bands;
  for (int64_t row = 0; row < whole.row_end; row += rows) {
    for (int64_t col = 0; col < whole.col_end; col += cols)
      bands.push_back({row, std::min(row + rows, whole.row_end), col, std::min(col + cols, whole.col_end)});
  }
  return bands;
}

}  // namespace tandem
