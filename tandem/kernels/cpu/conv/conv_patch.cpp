#include "tandem/kernels/cpu/conv/conv_patch.h"

#include <algorithm>
#include <cstring>

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

namespace {

// load(src, elems, dst) gives elements of x as the patch has them.
template <typename T, typename Load>
T* copy_as(const ConvGeometry& conv, const ConvBlocks& blocks, const ConvBlock& block, const void* x,
           DType dtype, int64_t first_channel, int64_t channels, T* patch, const Load& load) {
  // Columns of the patch that lie inside the image.
  const int64_t first = std::clamp<int64_t>(conv.pad_left, 0, blocks.patch_width);
  const int64_t last = std::clamp<int64_t>(conv.pad_left + conv.in_width, first, blocks.patch_width);
  for (int64_t image = 0; image < block.num_images; ++image) {
    for (int64_t row = 0; row < blocks.patch_rows; ++row, patch += blocks.patch_width * channels) {
      const int64_t h = block.first_row * conv.stride - conv.pad_top + row;
      if (h < 0 || h >= conv.in_height) {
        std::fill_n(patch, blocks.patch_width * channels, T{});
        continue;
      }
      const int64_t pixel =
          ((block.first_image + image) * conv.in_height + h) * conv.in_width + first - conv.pad_left;
      const void* src = offset_elems(x, dtype, pixel * conv.in_channels + first_channel);
      std::fill_n(patch, first * channels, T{});
      if (channels == conv.in_channels) {
        load(src, (last - first) * channels, patch + first * channels);
      } else {
        for (int64_t col = first; col < last; ++col) {
          load(offset_elems(src, dtype, (col - first) * conv.in_channels), channels, patch + col * channels);
        }
      }
      std::fill(patch + last * channels, patch + blocks.patch_width * channels, T{});
    }
  }
  return patch;
}

}  // namespace

void copy_patch(const ConvGeometry& conv, const ConvBlocks& blocks, const ConvBlock& block, const void* x,
                DType dtype, int64_t first_channel, int64_t channels, float* patch) {
  copy_as(conv, blocks, block, x, dtype, first_channel, channels, patch,
          [&](const void* src, int64_t elems, float* dst) { conv_load(dtype, src, elems, dst); });
}

void copy_patch_bf16(const ConvGeometry& conv, const ConvBlocks& blocks, const ConvBlock& block,
                     const void* x, int64_t first_channel, int64_t channels, uint16_t* patch, int64_t slack) {
  uint16_t* end = copy_as(conv, blocks, block, x, DType::BF16, first_channel, channels, patch,
                          [](const void* src, int64_t elems, uint16_t* dst) {
                            std::memcpy(dst, src, static_cast<size_t>(elems) * sizeof(uint16_t));
                          });
  std::fill_n(end, slack, uint16_t{0});
}

}  // namespace tandem::cpu
