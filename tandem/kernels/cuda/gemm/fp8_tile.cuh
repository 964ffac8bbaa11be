// Storing tensors in 8-bit floats, as they are and transposed, in one trip over memory: a block computes a
// tile of kTile x kTile elements, writes its rows at once, turns it in shared memory and writes its columns.
// What an element is comes from a Source, so that ops end in quantizing without a trip of their own.
#pragma once

#include <cuda_fp8.h>

#include "tandem/kernels/cuda/elements.cuh"

namespace tandem::cuda {

inline constexpr int kTile = 128;         // rows and columns of a tile
inline constexpr int kTileThreads = 256;  // each with 4 rows of 8 columns, twice
inline constexpr int kTileGroup = 8;      // columns that a thread has of a row

// Rows and columns are multiples of 16; addresses are multiples of 16 bytes.
struct Fp8Target {
  uint8_t* q = nullptr;   // [rows, cols], or null
  uint8_t* qt = nullptr;  // [cols, rows], or null
  const float* scale = nullptr;
  float* need = nullptr;  // may be null
  int64_t rows = 0;
  int64_t cols = 0;  // of the whole tensor: kParts times the source's
};

// Makes *most at least x, which all lanes of the warp have and which is not negative: then floats are ordered
// as their bits are, and the largest is the same in any order. Most warps find that there is nothing to do.
__device__ __forceinline__ void raise_to(float* most, float x) {
  if (threadIdx.x % 32 != 0 || __ldcg(most) >= x) return;
  atomicMax(reinterpret_cast<int*>(most), __float_as_int(x));
}

template <__nv_fp8_interpretation_t kFormat>
__device__ __forceinline__ uint32_t four_fp8(float a, float b, float c, float d) {
  const uint32_t low = __nv_cvt_float2_to_fp8x2(float2{a, b}, __NV_SATFINITE, kFormat);
  const uint32_t high = __nv_cvt_float2_to_fp8x2(float2{c, d}, __NV_SATFINITE, kFormat);
  return low | (high << 16);
}

// Four words of four bytes, turned: byte r of word c becomes byte c of word r.
__device__ __forceinline__ void turn_bytes(uint32_t (&w)[4]) {
  const uint32_t a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[2], w[3], 0x5140);
  const uint32_t c = __byte_perm(w[0], w[1], 0x7362), d = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(a, b, 0x5410);
  w[1] = __byte_perm(a, b, 0x7632);
  w[2] = __byte_perm(c, d, 0x5410);
  w[3] = __byte_perm(c, d, 0x7632);
}

// Where word `row4` (four rows) of a column of the tile lies: spread so that neither the writes, of 16 groups
// of columns at a time, nor the reads, along a column, meet in a bank. Pairs of words stay together.
__device__ __forceinline__ int turned_at(int column, int row4) {
  return column * (kTile / 4) + (row4 ^ ((column / kTileGroup % 16) * 2));
}

// A Source has kParts results for each (row, column of the source), kTileGroup columns at a time:
// load(row, column, float (&out)[kParts][kTileGroup]), each a value of the storage type. Part p is column
// p * (cols / kParts) + column of the result.
template <typename Source, __nv_fp8_interpretation_t kFormat>
__global__ void __launch_bounds__(kTileThreads) fp8_tile_kernel(const Source source, const Fp8Target target) {
  constexpr int kParts = Source::kParts;
  __shared__ alignas(16) uint32_t turned[kParts][kTile * kTile / 4];
  const int64_t part_cols = target.cols / kParts;
  const int64_t row_begin = int64_t{blockIdx.y} * kTile, col_begin = int64_t{blockIdx.x} * kTile;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int group = lane % 16;
  const int64_t col = col_begin + group * kTileGroup;
  const float inverse = 1.0f / *target.scale;
  float most = 0;

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row4 = half * 16 + warp * 2 + lane / 16;  // four rows of the tile
    const int64_t row = row_begin + row4 * 4;
    if (row >= target.rows || col >= part_cols) continue;
    uint32_t words[kParts][2][4];  // of columns 0-3 and 4-7, a word a row
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float x[kParts][kTileGroup];
      source.load(row + r, col, x);
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
#pragma unroll
        for (int i = 0; i < kTileGroup; ++i) {
          most = fmaxf(most, fabsf(x[p][i]));
          x[p][i] *= inverse;
        }
        words[p][0][r] = four_fp8<kFormat>(x[p][0], x[p][1], x[p][2], x[p][3]);
        words[p][1][r] = four_fp8<kFormat>(x[p][4], x[p][5], x[p][6], x[p][7]);
        if (target.q != nullptr) {
          *reinterpret_cast<uint2*>(target.q + (row + r) * target.cols + p * part_cols + col) =
              uint2{words[p][0][r], words[p][1][r]};
        }
      }
    }
    if (target.qt == nullptr) continue;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        turn_bytes(words[p][side]);
#pragma unroll
        for (int c = 0; c < 4; ++c)
          turned[p][turned_at(group * kTileGroup + side * 4 + c, row4)] = words[p][side][c];
      }
    }
  }
  if (target.qt != nullptr) {
    __syncthreads();
    // A half-warp writes the kTile rows of a column, 8 bytes a lane.
    const int64_t row = row_begin + lane % 16 * 8;
    for (int c = warp * 2 + lane / 16; c < kTile; c += kTileThreads / 16) {
      if (col_begin + c >= part_cols || row >= target.rows) continue;
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        *reinterpret_cast<uint2*>(target.qt + (p * part_cols + col_begin + c) * target.rows + row) =
            *reinterpret_cast<const uint2*>(&turned[p][turned_at(c, lane % 16 * 2)]);
      }
    }
  }
  if (target.need == nullptr) return;
  constexpr float kLargest = kFormat == __NV_E4M3 ? kLargestE4M3 : kLargestE5M2;
  raise_to(target.need, warp_max(most) / kLargest);
}

// From the op's inputs after its first `num_in`, its outputs and attributes; `x` is what is quantized.
Fp8Target fp8_target(const KernelArgs& args, size_t num_in, const Shape& x);

template <typename Source>
void launch_fp8_tile(const Source& source, const Fp8Target& target, const KernelArgs& args,
                     cudaStream_t queue) {
  const int64_t cols = target.cols / Source::kParts;
  const dim3 grid(static_cast<unsigned>((cols + kTile - 1) / kTile),
                  static_cast<unsigned>((target.rows + kTile - 1) / kTile));
  if (parse_dtype(args.attrs.text("dtype")) == DType::F8E4M3) {
    fp8_tile_kernel<Source, __NV_E4M3><<<grid, kTileThreads, 0, queue>>>(source, target);
  } else {
    fp8_tile_kernel<Source, __NV_E5M2><<<grid, kTileThreads, 0, queue>>>(source, target);
  }
}

}  // namespace tandem::cuda
