#include "tandem/kernels/cpu/conv/conv_direct.h"

#include <algorithm>
#include <cstring>

#include "tandem/kernels/cpu/conv/conv_pairs.h"
#include "tandem/kernels/cpu/conv/image_kernels.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kBlockPixels = 192;
// Values of 32 bits per output and slice of channels: a panel of weights stays in L2.
constexpr int64_t kSliceDepth = 768;

struct DirectCut {
  bool pairs;  // of bf16 (conv_pairs.h): a step is a pair, else a value
  ConvTileSize tile;
  ConvBlocks blocks;
  int64_t slice_channels, num_slices;
  int64_t kernel_height, kernel_width;
  int64_t out_vecs, out_pitch;  // output channels in vectors; floats of a row of sums
  // In units of 32 bits.
  int64_t weight_elems;             // all packed weights
  int64_t patch_elems, sums_elems;  // per worker
  int64_t block_pixels;

  DirectCut(const ConvGeometry& conv, DType dtype)
      : pairs(conv_uses_pairs(dtype)),
        tile(conv_tile_size()),
        blocks(conv, kBlockPixels),
        kernel_height(conv.kernel_height),
        kernel_width(conv.kernel_width) {
    num_slices = ceil_div(steps(conv.in_channels), kSliceDepth);
    slice_channels = std::min(conv.in_channels, round_up(ceil_div(conv.in_channels, num_slices), 16));
    num_slices = ceil_div(conv.in_channels, slice_channels);
    out_vecs = ceil_div(conv.out_channels, tile.lanes);
    out_pitch = out_vecs * tile.lanes;
    const int64_t last = conv.in_channels - (num_slices - 1) * slice_channels;
    weight_elems = round_up(((num_slices - 1) * steps(slice_channels) + steps(last)) * out_pitch, 16);
    const int64_t patch = blocks.patch_pixels() * slice_channels + kConvSlack;
    patch_elems = round_up(pairs ? ceil_div(patch, 2) : patch, 16);
    block_pixels = blocks.group_images * blocks.block_rows * conv.out_width;
    sums_elems = round_up((block_pixels + tile.rows) * out_pitch, 16);
  }
  int64_t run(int64_t channels) const {  // steps of a kernel row
    return ceil_div(kernel_width * channels, pairs ? 2 : 1);
  }
  int64_t steps(int64_t channels) const { return kernel_height * run(channels); }
  int64_t worker_elems() const { return patch_elems + sums_elems + round_up(block_pixels + tile.rows, 16); }
  int64_t total_elems(int num_threads) const { return weight_elems + num_threads * worker_elems(); }
};

// Packs `count` output channels from `first_out` on, of channels [c.begin, c.end), as [row][col][c][width].
template <typename S>
void pack_panel(const ConvGeometry& conv, const ConvWeight& weight, Range c, int64_t first_out, int64_t width,
                float* dst) {
  const int64_t count = std::min(width, conv.out_channels - first_out);
  const S* base = static_cast<const S*>(weight.data) + first_out * weight.out;
  for (int64_t r = 0; r < conv.kernel_height; ++r) {
    for (int64_t q = 0; q < conv.kernel_width; ++q) {
      for (int64_t i = c.begin; i < c.end; ++i, dst += width) {
        const S* src = base + r * weight.row + q * weight.col + i * weight.in;
        for (int64_t o = 0; o < count; ++o) {
          if constexpr (std::is_same_v<S, float>) {
            dst[o] = src[o * weight.out];
          } else {
            dst[o] = to_float(src[o * weight.out]);
          }
        }
        std::fill(dst + count, dst + width, 0.0f);
      }
    }
  }
}

// The same of bf16 as [row][pair of the run][width]; what is missing of the last pair is zero.
void pack_pairs(const ConvGeometry& conv, const ConvWeight& weight, Range c, int64_t first_out, int64_t width,
                float* dst) {
  const int64_t count = std::min(width, conv.out_channels - first_out), run = conv.kernel_width * c.size();
  const auto* base = static_cast<const uint16_t*>(weight.data) + first_out * weight.out;
  for (int64_t r = 0; r < conv.kernel_height; ++r) {
    const auto at = [&](int64_t k) {
      return base + r * weight.row + k / c.size() * weight.col + (c.begin + k % c.size()) * weight.in;
    };
    for (int64_t k = 0; k < run; k += 2, dst += width) {
      const uint16_t *first = at(k), *second = k + 1 < run ? at(k + 1) : nullptr;
      uint16_t pair[2] = {};
      for (int64_t o = 0; o < count; ++o) {
        pair[0] = first[o * weight.out];
        if (second != nullptr) pair[1] = second[o * weight.out];
        std::memcpy(dst + o, pair, sizeof pair);
      }
      std::fill(dst + count, dst + width, 0.0f);
    }
  }
}

// Calls fn(first vector, vectors) for each panel of output channels.
template <typename Fn>
void for_each_panel(const DirectCut& cut, const Fn& fn) {
  for (int64_t vec = 0; vec < cut.out_vecs;) {
    const int64_t vecs = conv_next_vecs(cut.out_vecs - vec, cut.tile.vecs);
    fn(vec, vecs);
    vec += vecs;
  }
}

float* panel_of(const DirectCut& cut, float* packed, Range c, int64_t vec) {
  const int64_t slice = c.begin / cut.slice_channels;
  return packed + slice * cut.steps(cut.slice_channels) * cut.out_pitch +
         cut.steps(c.size()) * vec * cut.tile.lanes;
}

void pack_weights(const ConvGeometry& conv, const DirectCut& cut, const ConvWeight& weight, float* packed,
                  ThreadPool& pool) {
  pool.parallel_for(cut.num_slices * cut.out_vecs, [&](int64_t task, int) {
    const Range c = part(conv.in_channels, cut.slice_channels, task / cut.out_vecs);
    for_each_panel(cut, [&](int64_t vec, int64_t vecs) {
      if (vec != task % cut.out_vecs) return;
      if (cut.pairs) {
        pack_pairs(conv, weight, c, vec * cut.tile.lanes, vecs * cut.tile.lanes,
                   panel_of(cut, packed, c, vec));
        return;
      }
      with_storage(weight.dtype, [&]<typename S>(S) {
        pack_panel<S>(conv, weight, c, vec * cut.tile.lanes, vecs * cut.tile.lanes,
                      panel_of(cut, packed, c, vec));
      });
    });
  });
}

// Offsets into the patch of the block's pixels, in units of channels; the last repeats to fill a tile.
int64_t list_pixels(const ConvGeometry& conv, const DirectCut& cut, const ConvBlock& block,
                    int32_t* offsets) {
  int64_t n = 0;
  for (int64_t image = 0; image < block.num_images; ++image) {
    for (int64_t row = 0; row < block.num_rows; ++row) {
      const int64_t first = (image * cut.blocks.patch_rows + row * conv.stride) * cut.blocks.patch_width;
      for (int64_t col = 0; col < conv.out_width; ++col)
        offsets[n++] = static_cast<int32_t>(first + col * conv.stride);
    }
  }
  std::fill_n(offsets + n, cut.tile.rows, offsets[n - 1]);
  return n;
}

void add_slice(const ConvGeometry& conv, const DirectCut& cut, Range c, const void* patch,
               const int32_t* offsets, int64_t num_pixels, float* packed, float* sums) {
  ConvTileArgs args{.pixels = {},
                    .kernel_rows = conv.kernel_height,
                    .run = cut.run(c.size()),
                    .row_pitch = cut.blocks.patch_width * c.size(),
                    .weights = nullptr,
                    .sums = nullptr,
                    .sums_pitch = cut.out_pitch,
                    .vecs = 0,
                    .add = c.begin > 0};
  for_each_panel(cut, [&](int64_t vec, int64_t vecs) {
    args.weights = panel_of(cut, packed, c, vec);
    args.vecs = static_cast<int>(vecs);
    for (int64_t pixel = 0; pixel < num_pixels; pixel += cut.tile.rows) {
      for (int64_t m = 0; m < cut.tile.rows; ++m)
        args.pixels[m] =
            offset_elems(patch, cut.pairs ? DType::BF16 : DType::F32, offsets[pixel + m] * c.size());
      args.sums = sums + pixel * cut.out_pitch + vec * cut.tile.lanes;
      if (cut.pairs) {
        conv_pair_tile(args);
      } else {
        conv_tile(args);
      }
    }
  });
}

void store_block(const ConvGeometry& conv, const DirectCut& cut, const ConvBlock& block, const float* sums,
                 const float* bias, const ConvTarget& y) {
  for (int64_t image = 0; image < block.num_images; ++image) {
    for (int64_t row = 0; row < block.num_rows; ++row) {
      const int64_t first = (block.first_image + image) * y.image + (block.first_row + row) * y.row;
      for (int64_t col = 0; col < conv.out_width; ++col, sums += cut.out_pitch) {
        conv_store(y.dtype, sums, bias, conv.out_channels,
                   offset_elems(y.data, y.dtype, first + col * y.col));
      }
    }
  }
}

}  // namespace

size_t direct_conv_workspace(const ConvGeometry& conv, DType dtype, int num_threads) {
  return static_cast<size_t>(DirectCut(conv, dtype).total_elems(num_threads)) * sizeof(float);
}

void direct_conv(const ConvGeometry& conv, const void* x, DType dtype, const ConvWeight& weight,
                 const float* bias, const ConvTarget& y, std::span<std::byte> workspace, ThreadPool& pool) {
  const DirectCut cut(conv, dtype);
  TANDEM_CHECK(weight.dtype == dtype);
  float* packed = reinterpret_cast<float*>(workspace.data());
  pack_weights(conv, cut, weight, packed, pool);
  pool.parallel_for(cut.blocks.num_blocks(), [&](int64_t task, int worker) {
    float* patch = packed + cut.weight_elems + worker * cut.worker_elems();
    float* sums = patch + cut.patch_elems;
    int32_t* offsets = reinterpret_cast<int32_t*>(sums + cut.sums_elems);
    const ConvBlock block(conv, cut.blocks, task);
    const int64_t num_pixels = list_pixels(conv, cut, block, offsets);
    for (int64_t slice = 0; slice < cut.num_slices; ++slice) {
      const Range c = part(conv.in_channels, cut.slice_channels, slice);
      if (cut.pairs) {
        copy_patch_bf16(conv, cut.blocks, block, x, c.begin, c.size(), reinterpret_cast<uint16_t*>(patch),
                        kConvSlack);
      } else {
        copy_patch(conv, cut.blocks, block, x, dtype, c.begin, c.size(), patch);
      }
      add_slice(conv, cut, c, patch, offsets, num_pixels, packed, sums);
    }
    store_block(conv, cut, block, sums, bias, y);
  });
}

}  // namespace tandem::cpu
