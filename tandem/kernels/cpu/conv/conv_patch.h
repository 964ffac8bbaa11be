// How a convolution is cut into blocks of output pixels, and the fp32 patch of the input that a block reads:
// a copy with the padding written out, so that no tile ever asks where the image ends.
#pragma once

#include <cstdint>

#include "tandem/base/dtype.h"

namespace tandem::cpu {

// y[p][o] = sum over the kernel of x[p * stride - pad + tap][c] w[o][tap][c]. Pads may be negative.
struct ConvGeometry {
  int64_t images;
  int64_t in_height, in_width, in_channels;
  int64_t out_height, out_width, out_channels;
  int64_t kernel_height, kernel_width;
  int64_t stride, pad_top, pad_left;
};

// A block is some rows of one image or, where images are small, several whole images. Cut by shape only.
struct ConvBlocks {
  int64_t group_images, num_groups;
  int64_t block_rows, blocks_per_group;
  int64_t patch_rows, patch_width;

  ConvBlocks(const ConvGeometry& conv, int64_t block_pixels);
  int64_t num_blocks() const { return num_groups * blocks_per_group; }
  int64_t patch_pixels() const { return group_images * patch_rows * patch_width; }
};

struct ConvBlock {
  int64_t first_image, num_images;
  int64_t first_row, num_rows;  // of the output

  ConvBlock(const ConvGeometry& conv, const ConvBlocks& blocks, int64_t index);
};

// patch[image][row][col][0, channels) of channels [first_channel, first_channel + channels).
void copy_patch(const ConvGeometry& conv, const ConvBlocks& blocks, const ConvBlock& block, const void* x,
                DType dtype, int64_t first_channel, int64_t channels, float* patch);

// The same of bf16 as it is, with `slack` zeros behind it.
void copy_patch_bf16(const ConvGeometry& conv, const ConvBlocks& blocks, const ConvBlock& block,
                     const void* x, int64_t first_channel, int64_t channels, uint16_t* patch, int64_t slack);

}  // namespace tandem::cpu
