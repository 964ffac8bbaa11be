// A task owns some output channels, a slice of input channels and a span of the blocks of pixels; it adds
// its blocks in order to sums of its own, and the spans are then added to `acc` in order. Spans exist only
// to give small weights enough tasks.
#include "tandem/kernels/cpu/conv/conv_grad_weight.h"

#include <algorithm>

#include "tandem/kernels/cpu/conv/conv_pairs.h"
#include "tandem/kernels/cpu/conv/image_kernels.h"

namespace tandem::cpu {
namespace {

constexpr int64_t kBlockPixels = 128;
constexpr int64_t kOutChannels = 32;  // of a task, at most
constexpr int64_t kInChannels = 64;
constexpr int64_t kTasks = 32;

struct GradCut {
  bool pairs;  // of pixels in bf16 (conv_pairs.h): a step is a pair, else a pixel
  ConvTileSize tile;
  ConvBlocks blocks;
  int64_t outs, num_outs;     // output channels of a task, and tasks over them
  int64_t slice, num_slices;  // input channels of a task
  int64_t span, num_spans;    // blocks of a task
  int64_t row_steps;          // of an output row
  int64_t run_pitch, outs_pitch;
  int64_t sums_elems, patch_elems, raw_elems, dy_elems;  // in units of 32 bits

  GradCut(const ConvGeometry& conv, DType dtype)
      : pairs(conv_uses_pairs(dtype)), tile(conv_tile_size()), blocks(conv, kBlockPixels) {
    num_outs = ceil_div(conv.out_channels, kOutChannels);
    outs = ceil_div(conv.out_channels, num_outs);
    slice = ceil_div(conv.in_channels, ceil_div(conv.in_channels, kInChannels));
    num_slices = ceil_div(conv.in_channels, slice);
    const int64_t most_spans = std::max<int64_t>(1, kTasks / (num_outs * num_slices));
    span = ceil_div(blocks.num_blocks(), std::min(most_spans, blocks.num_blocks()));
    num_spans = ceil_div(blocks.num_blocks(), span);
    run_pitch = round_up(conv.kernel_width * slice, tile.lanes);
    outs_pitch = round_up(outs, tile.rows);
    sums_elems = round_up(outs_pitch * conv.kernel_height * run_pitch, 16);
    patch_elems = round_up(blocks.patch_pixels() * slice + kConvSlack, 16);
    // Pixels as they are, from which the pairs are made, and zeros for the last to pair up with.
    raw_elems = pairs ? round_up(ceil_div(blocks.patch_pixels() * slice + conv.stride * slice, 2), 16) : 0;
    row_steps = pairs ? ceil_div(conv.out_width, 2) : conv.out_width;
    dy_elems = round_up(blocks.group_images * blocks.block_rows * row_steps * outs_pitch, 16);
  }
  int64_t worker_elems() const { return patch_elems + raw_elems + dy_elems; }
  int64_t tasks_per_span() const { return num_outs * num_slices; }
  int64_t num_tasks() const { return num_spans * tasks_per_span(); }
  int64_t total_elems(int num_threads) const {
    return num_tasks() * sums_elems + num_threads * worker_elems();
  }
};

// patch[pixel] = the pixel and the one that the next output sees in its place.
void copy_pairs(const ConvGeometry& conv, const GradCut& cut, const ConvBlock& block, const void* x, Range c,
                uint16_t* raw, float* patch) {
  const int64_t apart = conv.stride * c.size();
  copy_patch_bf16(conv, cut.blocks, block, x, c.begin, c.size(), raw, apart);
  conv_make_pairs(raw, raw + apart,
                  block.num_images * cut.blocks.patch_rows * cut.blocks.patch_width * c.size(), patch);
}

// dst[step][0, outs_pitch): the block's gradients of channels [o.begin, o.end), then zeros. A last pixel
// without another is paired with zero.
void copy_dy_pairs(const ConvGeometry& conv, const GradCut& cut, const ConvBlock& block, const void* dy,
                   Range o, float* dst) {
  const auto* all = static_cast<const uint16_t*>(dy) + o.begin;
  for (int64_t image = block.first_image; image < block.first_image + block.num_images; ++image) {
    for (int64_t row = block.first_row; row < block.first_row + block.num_rows; ++row) {
      const uint16_t* at = all + (image * conv.out_height + row) * conv.out_width * conv.out_channels;
      for (int64_t col = 0; col < conv.out_width; col += 2, dst += cut.outs_pitch) {
        const uint16_t* first = at + col * conv.out_channels;
        conv_make_pairs(first, col + 1 < conv.out_width ? first + conv.out_channels : nullptr, o.size(), dst);
        std::fill(dst + o.size(), dst + cut.outs_pitch, 0.0f);
      }
    }
  }
}

// The same of floats.
void copy_dy(const ConvGeometry& conv, const GradCut& cut, const ConvBlock& block, const void* dy,
             DType dtype, Range o, float* dst) {
  for (int64_t image = block.first_image; image < block.first_image + block.num_images; ++image) {
    const int64_t first = (image * conv.out_height + block.first_row) * conv.out_width;
    for (int64_t p = 0; p < block.num_rows * conv.out_width; ++p, dst += cut.outs_pitch) {
      conv_load(dtype, offset_elems(dy, dtype, (first + p) * conv.out_channels + o.begin), o.size(), dst);
      std::fill(dst + o.size(), dst + cut.outs_pitch, 0.0f);
    }
  }
}

// sums[o][r][k] += the block's products.
void add_block(const ConvGeometry& conv, const GradCut& cut, const ConvBlock& block, int64_t channels,
               const float* patch, const float* dy, float* sums) {
  const int64_t row_pitch = cut.blocks.patch_width * channels;
  const int64_t num_vecs = ceil_div(conv.kernel_width * channels, cut.tile.lanes);
  ConvGradTileArgs args{.x = nullptr,
                        .dy = nullptr,
                        .rows = block.num_rows,
                        .cols = cut.row_steps,
                        .x_row_pitch = conv.stride * row_pitch,
                        .x_col_pitch = conv.stride * channels * (cut.pairs ? 2 : 1),
                        .dy_pitch = cut.outs_pitch,
                        .sums = nullptr,
                        .sums_pitch = conv.kernel_height * cut.run_pitch,
                        .vecs = 0};
  for (int64_t image = 0; image < block.num_images; ++image) {
    const float* image_patch = patch + image * cut.blocks.patch_rows * row_pitch;
    const float* image_dy = dy + image * block.num_rows * cut.row_steps * cut.outs_pitch;
    for (int64_t r = 0; r < conv.kernel_height; ++r) {
      for (int64_t vec = 0; vec < num_vecs; vec += args.vecs) {
        args.vecs = static_cast<int>(conv_next_vecs(num_vecs - vec, cut.tile.vecs));
        args.x = image_patch + r * row_pitch + vec * cut.tile.lanes;
        for (int64_t o = 0; o < cut.outs_pitch; o += cut.tile.rows) {
          args.dy = image_dy + o;
          args.sums = sums + o * args.sums_pitch + r * cut.run_pitch + vec * cut.tile.lanes;
          if (cut.pairs) {
            conv_pair_grad_tile(args);
          } else {
            conv_grad_tile(args);
          }
        }
      }
    }
  }
}

// acc[o] += the sums of every span, in order.
void add_spans(const ConvGeometry& conv, const GradCut& cut, const float* sums, int64_t o, float* acc) {
  float* dst = acc + o * conv.kernel_height * conv.kernel_width * conv.in_channels;
  for (int64_t r = 0; r < conv.kernel_height; ++r) {
    for (int64_t q = 0; q < conv.kernel_width; ++q) {
      for (int64_t slice = 0; slice < cut.num_slices; ++slice) {
        const Range c = part(conv.in_channels, cut.slice, slice);
        const float* src = sums + (o / cut.outs * cut.num_slices + slice) * cut.sums_elems +
                           ((o % cut.outs) * conv.kernel_height + r) * cut.run_pitch + q * c.size();
        for (int64_t i = 0; i < c.size(); ++i) {
          float total = src[i];
          for (int64_t span = 1; span < cut.num_spans; ++span) {
            total += src[span * cut.tasks_per_span() * cut.sums_elems + i];
          }
          dst[i] += total;
        }
        dst += c.size();
      }
    }
  }
}

}  // namespace

size_t conv_grad_weight_workspace(const ConvGeometry& conv, DType dtype, int num_threads) {
  return static_cast<size_t>(GradCut(conv, dtype).total_elems(num_threads)) * sizeof(float);
}

void conv_grad_weight(const ConvGeometry& conv, const void* x, const void* dy, DType dtype, float* acc,
                      std::span<std::byte> workspace, ThreadPool& pool) {
  const GradCut cut(conv, dtype);
  float* all_sums = reinterpret_cast<float*>(workspace.data());
  pool.parallel_for(cut.num_tasks(), [&](int64_t task, int worker) {
    float* sums = all_sums + task * cut.sums_elems;
    float* patch = all_sums + cut.num_tasks() * cut.sums_elems + worker * cut.worker_elems();
    float* raw = patch + cut.patch_elems;
    float* block_dy = raw + cut.raw_elems;
    const Range blocks = part(cut.blocks.num_blocks(), cut.span, task / cut.tasks_per_span());
    const Range o = part(conv.out_channels, cut.outs, task % cut.tasks_per_span() / cut.num_slices);
    const Range c = part(conv.in_channels, cut.slice, task % cut.num_slices);
    std::fill_n(sums, cut.sums_elems, 0.0f);
    for (int64_t index = blocks.begin; index < blocks.end; ++index) {
      const ConvBlock block(conv, cut.blocks, index);
      if (cut.pairs) {
        copy_pairs(conv, cut, block, x, c, reinterpret_cast<uint16_t*>(raw), patch);
        copy_dy_pairs(conv, cut, block, dy, o, block_dy);
      } else {
        copy_patch(conv, cut.blocks, block, x, dtype, c.begin, c.size(), patch);
        copy_dy(conv, cut, block, dy, dtype, o, block_dy);
      }
      add_block(conv, cut, block, c.size(), patch, block_dy, sums);
    }
  });
  pool.parallel_for(conv.out_channels, [&](int64_t o, int) { add_spans(conv, cut, all_sums, o, acc); });
}

}  // namespace tandem::cpu
