#include "tandem/kernels/cpu/conv/conv_patch.h"

#include <algorithm>

#include "tandem/kernels/cpu/conv/conv_tile.h"
#include "tandem/kernels/cpu/conv/image_kernels.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kLeastGroups = 8;  // images are grouped only while this many tasks remain

}  // namespace

ConvBlocks::ConvBlocks(const ConvGeometry& conv, int64_t block_pixels) {
  const int64_t pixels = conv.out_height * conv.out_width;
  group_images = std::max<int64_t>(1, std::min(block_pixels / pixels, conv.images / kLeastGroups));
  num_groups = ceil_div(conv.images, group_images);
  const int64_t most_rows = std::clamp<int64_t>(block_pixels / conv.out_width, 1, conv.out_height);
  blocks_per_group = ceil_div(conv.out_height, most_rows);
  block_rows = ceil_div(conv.out_height, blocks_per_group);
  blocks_per_group = ceil_div(conv.out_height, block_rows);
  patch_rows = (block_rows - 1) * conv.stride + conv.kernel_height;
  patch_width = (conv.out_width - 1) * conv.stride + conv.kernel_width;
}

ConvBlock::ConvBlock(const ConvGeometry& conv, const ConvBlocks& blocks, int64_t index) {
  const Range images = part(conv.images, blocks.group_images, index / blocks.blocks_per_group);
  const Range rows = part(conv.out_height, blocks.block_rows, index % blocks.blocks_per_group);
  first_image = images.begin, num_images = images.size();
  first_row = rows.begin, num_rows = rows.size();
}

void copy_patch(const ConvGeometry& conv, const ConvBlocks& blocks, const ConvBlock& block, const void* x,
                DType dtype, int64_t first_channel, int64_t channels, float* patch) {
  // Columns of the patch that lie inside the image.
  const int64_t first = std::clamp<int64_t>(conv.pad_left, 0, blocks.patch_width);
  const int64_t last = std::clamp<int64_t>(conv.pad_left + conv.in_width, first, blocks.patch_width);
  for (int64_t image = 0; image < block.num_images; ++image) {
    for (int64_t row = 0; row < blocks.patch_rows; ++row, patch += blocks.patch_width * channels) {
      const int64_t h = block.first_row * conv.stride - conv.pad_top + row;
      if (h < 0 || h >= conv.in_height) {
        std::fill_n(patch, blocks.patch_width * channels, 0.0f);
        continue;
      }
      const int64_t pixel =
          ((block.first_image + image) * conv.in_height + h) * conv.in_width + first - conv.pad_left;
      const void* src = offset_elems(x, dtype, pixel * conv.in_channels + first_channel);
      std::fill_n(patch, first * channels, 0.0f);
      if (channels == conv.in_channels) {
        conv_load(dtype, src, (last - first) * channels, patch + first * channels);
      } else {
        for (int64_t col = first; col < last; ++col) {
          conv_load(dtype, offset_elems(src, dtype, (col - first) * conv.in_channels), channels,
                    patch + col * channels);
        }
      }
      std::fill(patch + last * channels, patch + blocks.patch_width * channels, 0.0f);
    }
  }
}

}  // namespace tandem::cpu
