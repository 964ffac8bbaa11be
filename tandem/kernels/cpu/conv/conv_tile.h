// The arithmetic of direct convolution: register tiles over zero-padded fp32 patches of the image. Because a
// patch row is contiguous, the kernel_width * channels values under one row of the kernel are one run.
#pragma once

#include <cstdint>

#include "tandem/base/dtype.h"

namespace tandem::cpu {

inline constexpr int kConvPixels = 8;  // pixels (forward) or output channels (gradient) of a tile, at most
inline constexpr int64_t kConvSlack = 64;  // floats that a tile may read past a patch

struct ConvTileSize {
  int64_t lanes;  // floats of a vector
  int64_t rows;   // rows of a tile, at most kConvPixels
  int64_t vecs;   // most vectors of a tile
};
ConvTileSize conv_tile_size();

// sums[m][n] = (add ? sums[m][n] : 0) + sum over r, k of pixels[m][r * row_pitch + k] * weights[r][k][n],
// for `rows` m (all rows of the tile size), n in [0, vecs * lanes).
struct ConvTileArgs {
  const void* pixels[kConvPixels];  // of floats
  int64_t kernel_rows;
  int64_t run;  // k of a kernel row
  int64_t row_pitch;
  const float* weights;
  float* sums;
  int64_t sums_pitch;
  int vecs;
  bool add;
};
void conv_tile(const ConvTileArgs& args);

// sums[m][n] += sum over the pixels p of a block of dy[p][m] * x[p][n]: the weight gradient of `rows` output
// channels m and vecs * lanes neighbours n of a run.
struct ConvGradTileArgs {
  const float* x;
  const float* dy;
  int64_t rows;  // of the block
  int64_t cols;
  int64_t x_row_pitch;
  int64_t x_col_pitch;
  int64_t dy_pitch;
  float* sums;
  int64_t sums_pitch;
  int vecs;
};
void conv_grad_tile(const ConvGradTileArgs& args);

// dst = src as fp32, and dst = src + bias (if not null) in `dtype`.
void conv_load(DType dtype, const void* src, int64_t elems, float* dst);
void conv_store(DType dtype, const float* src, const float* bias, int64_t elems, void* dst);

// How `num` vectors are cut into tiles of at most `most`: 4 is 2 + 2, not 3 + 1.
inline int64_t conv_next_vecs(int64_t num, int64_t most) {
  return num == most + 1 && most > 1 ? num / 2 : num < most ? num : most;
}

}  // namespace tandem::cpu
