// Attention on Hopper, but for the arithmetic: how work is cut and given to blocks, and heads in memory.
// A head has 64 elements of 16 bits, so that a tile is one head's part of 64 tokens.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstddef>

#include "tandem/kernels/cuda/attention/fused_attention.h"
#include "tandem/kernels/cuda/attention/hopper.cuh"
#include "tandem/kernels/cuda/elements.cuh"

namespace tandem::cuda::hopper {

struct AttentionShape {
  int batch, time, heads, kv_heads;
  bool causal;
  float scale;

  explicit AttentionShape(const FusedAttention& s);

  __host__ __device__ int tiles() const { return (time + kTileSide - 1) / kTileSide; }
  __host__ __device__ int blocks_of(int rows) const { return (time + rows - 1) / rows; }
  // Columns of packed qkv.
  __host__ __device__ int width() const { return (heads + 2 * kv_heads) * kTileSide; }
  __host__ __device__ int query_column(int head) const { return head * kTileSide; }
  __host__ __device__ int key_column(int kv_head) const { return (heads + kv_head) * kTileSide; }
  __host__ __device__ int value_column(int kv_head) const { return (heads + kv_heads + kv_head) * kTileSide; }
};

// Rows of `width` elements, one for each token of each sequence, for load_tile().
CUtensorMap tile_map(const void* rows, DType type, const AttentionShape& shape, int width);

// Blocks that do so many pieces of work between them: one a multiprocessor.
unsigned blocks_for(int pieces);

// Calls fn(piece) for the block's pieces. From one round to the next the blocks change places, so that none
// gets the larger piece of every round.
template <typename Fn>
__device__ __forceinline__ void for_each_piece(int pieces, Fn&& fn) {
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
#pragma unroll 1
  for (int round = 0; round * blocks < pieces; ++round) {
    const int piece = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
    if (piece < pieces) fn(piece);
  }
}

// Two tiles that are read together.
struct TilePair {
  alignas(1024) std::byte qk[kTileBytes];  // queries, or keys
  std::byte vo[kTileBytes];                // values, or gradients of the output
};

// Puts -inf for columns from `end` on.
__device__ __forceinline__ void mask_columns(Sums& score, int end) {
#pragma unroll
  for (int i = 0; i < 32; ++i)
    if (i / 4 * 8 + sums_column() + i % 2 >= end) score.value[i] = -INFINITY;
}

// Puts -inf for keys after the query; rows and columns begin at the same token.
template <bool kKeyRows>
__device__ __forceinline__ void mask_later_keys(Sums& score) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int row = sums_row() + i % 4 / 2 * 8, column = i / 4 * 8 + sums_column() + i % 2;
    if (kKeyRows ? row > column : column > row) score.value[i] = -INFINITY;
  }
}

// A warpgroup's rows, through a tile of shared memory that is not needed any more, into memory. Calls
// seen(pack) for what the thread writes: always columns from 8 (t % 8) on.
template <typename T, typename Fn>
__device__ __forceinline__ void store_rows(std::byte* tile, const Sums& sums, float scale, T* out,
                                           int64_t stride, int rows, Fn&& seen) {
  sync_warpgroup();  // the tile has been read by all
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int at = tile_offset(sums_row() + i % 2 * 8, i / 2 * 8 + sums_column());
    *reinterpret_cast<uint32_t*>(tile + at) =
        pack_pair<T>(sums.value[2 * i] * scale, sums.value[2 * i + 1] * scale);
  }
  __syncwarp();  // a warp reads the 16 rows it wrote
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = first + 4 * i + lane / 8, column = lane % 8 * 8;
    if (r >= rows) continue;
    const Pack<T> pack = load_pack(reinterpret_cast<const T*>(tile + tile_offset(r, column)));
    store_pack(out + r * stride + column, pack);
    seen(pack);
  }
}

}  // namespace tandem::cuda::hopper
