// Tiles of the attention kernels: products of matrices that lie in shared memory as fp32, by plain FMAs. A
// tile has as many rows as columns; the block's 16 x 16 threads share it, thread (ty, tx) having rows ty *
// kMicro + i and columns tx + 16 j. A row is then shared by 16 neighbouring lanes of one warp: sums over it
// need shuffles only, and what these lanes store of it they may read after __syncwarp().
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "tandem/kernels/cuda/attention/packed_heads.h"
#include "tandem/kernels/cuda/elements.cuh"

namespace tandem::cuda {

inline constexpr int kTileThreads = 256;
inline constexpr int64_t kMaxHeadDim = 256;

// Geometry for heads of up to kDim elements; a shorter one is filled up with zeros. Rows in shared memory are
// 16 bytes longer than they need to be, so that neighbouring rows begin in different banks.
template <int kDim>
struct Tile {
  static constexpr int kMicro = kDim <= 128 ? 4 : 2;  // rows, and columns, of a thread
  static constexpr int kRows = 16 * kMicro;
  static constexpr int kStride = kDim + 4;          // floats between rows of a head's vectors
  static constexpr int kScoreStride = kRows + 4;    // and of scores
  static constexpr int kVectors = kRows * kStride;  // floats of a tile of vectors
  static constexpr int kScores = kRows * kScoreStride;
  static constexpr int kMixed = kDim / 16;  // columns of a product with vectors, of a thread
};

__device__ __forceinline__ int tile_x() { return static_cast<int>(threadIdx.x) % 16; }
__device__ __forceinline__ int tile_y() { return static_cast<int>(threadIdx.x) / 16; }

// Where one head's vectors, a token each, lie in a tensor of many.
struct HeadRows {
  int64_t first;   // element where the head's first token begins
  int64_t stride;  // elements of a token
};

struct AttentionCall {
  DType dtype;
  int batch, tokens, heads, kv_heads, head_dim;
  bool causal;
  float scale;
  int window;  // keys that a query sees, itself and those before it; the number of tokens or more: all
  float cap;   // of scores; 0: none
  const int* segments;  // [batch, tokens]: a query sees keys of its own number; null: all

  __device__ bool sees(int b, int query, int key) const {
    if (query >= tokens || key >= tokens) return false;
    if (causal && (key > query || key <= query - window)) return false;
    return segments == nullptr ||
           segments[int64_t{b} * tokens + query] == segments[int64_t{b} * tokens + key];
  }
  // Of the product of a query and a key.
  __device__ float score(float product) const {
    const float s = product * scale;
    return cap == 0 ? s : cap * tanhf(s / cap);
  }
  // The first key that a query from `begin` on sees, and the first query that no key before `end` is seen by.
  __device__ int first_key(int begin) const { return causal ? max(0, begin - window + 1) : 0; }
  __device__ int query_end(int end) const {
    return causal && window < tokens ? min(tokens, end - 1 + window) : tokens;
  }

  // Slots are those of packed qkv: query heads, then keys, then values.
  __device__ HeadRows slot(int b, int index) const { return rows(b, index, heads + 2 * kv_heads); }
  __device__ HeadRows output(int b, int head) const { return rows(b, head, heads); }
  __device__ HeadRows rows(int b, int index, int count) const {
    const int64_t stride = int64_t{count} * head_dim;
    return {int64_t{b} * tokens * stride + int64_t{index} * head_dim, stride};
  }
  // Of what there is a number for each query: lse.
  __device__ int64_t first_query(int b, int head) const { return (int64_t{b} * heads + head) * tokens; }
};

template <typename T, int kDim>
__device__ __forceinline__ void load_rows_as(float* dst, const T* src, int64_t stride, int rows,
                                             int head_dim) {
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x); at < Tile<kDim>::kRows * kDim; at += kTileThreads) {
    const int row = at / kDim, i = at % kDim;
    dst[row * Tile<kDim>::kStride + i] = row < rows && i < head_dim ? to_float(src[row * stride + i]) : 0.0f;
  }
}

// Tokens [begin, begin + kRows); those that do not exist are zeros. The storage type is looked at here, once
// a tile, so that a kernel need not exist for each.
template <int kDim>
__device__ __forceinline__ void load_rows(float* dst, const AttentionCall& call, const void* data,
                                          const HeadRows& src, int begin) {
  const int64_t at = src.first + begin * src.stride;
  const int rows = call.tokens - begin;
  switch (call.dtype) {
    case DType::BF16:
      return load_rows_as<__nv_bfloat16, kDim>(dst, static_cast<const __nv_bfloat16*>(data) + at, src.stride,
                                               rows, call.head_dim);
    case DType::F16:
      return load_rows_as<__half, kDim>(dst, static_cast<const __half*>(data) + at, src.stride, rows,
                                        call.head_dim);
    default:
      return load_rows_as<float, kDim>(dst, static_cast<const float*>(data) + at, src.stride, rows,
                                       call.head_dim);
  }
}

__device__ __forceinline__ void store_element(void* data, DType dtype, int64_t at, float x) {
  switch (dtype) {
    case DType::BF16: static_cast<__nv_bfloat16*>(data)[at] = from_float<__nv_bfloat16>(x); return;
    case DType::F16: static_cast<__half*>(data)[at] = from_float<__half>(x); return;
    default: static_cast<float*>(data)[at] = x; return;
  }
}

template <int kDim>
using Scores = float[Tile<kDim>::kMicro][Tile<kDim>::kMicro];
// Columns of a mixed row: 4 neighbours, from tx * 4 on, of every 64.
template <int kDim>
using Mixed = float[Tile<kDim>::kMicro][Tile<kDim>::kMixed];

// out = rows . columns^T
template <int kDim>
__device__ __forceinline__ void dot_rows(const float* rows, const float* columns, Scores<kDim>& out) {
  using Geometry = Tile<kDim>;
  constexpr int kMicro = Geometry::kMicro;
  const float* a = rows + tile_y() * kMicro * Geometry::kStride;
  const float* b = columns + tile_x() * Geometry::kStride;
#pragma unroll
  for (int i = 0; i < kMicro; ++i) {
#pragma unroll
    for (int j = 0; j < kMicro; ++j) out[i][j] = 0;
  }
#pragma unroll 1
  for (int d = 0; d < kDim; d += 4) {
    Pack<float> x[kMicro], y[kMicro];
#pragma unroll
    for (int i = 0; i < kMicro; ++i) {
      x[i] = load_pack(a + i * Geometry::kStride + d);
      y[i] = load_pack(b + 16 * i * Geometry::kStride + d);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < kMicro; ++i) {
#pragma unroll
        for (int j = 0; j < kMicro; ++j) out[i][j] = fmaf(x[i].value[k], y[j].value[k], out[i][j]);
      }
    }
  }
}

template <int kDim>
__device__ __forceinline__ void store_scores(float* dst, const Scores<kDim>& scores) {
  using Geometry = Tile<kDim>;
#pragma unroll
  for (int i = 0; i < Geometry::kMicro; ++i) {
    float* row = dst + (tile_y() * Geometry::kMicro + i) * Geometry::kScoreStride + tile_x();
#pragma unroll
    for (int j = 0; j < Geometry::kMicro; ++j) row[16 * j] = scores[i][j];
  }
}

// sums += weights . vectors
template <int kDim>
__device__ __forceinline__ void mix_rows(const float* weights, const float* vectors, Mixed<kDim>& sums) {
  using Geometry = Tile<kDim>;
  const float* a = weights + tile_y() * Geometry::kMicro * Geometry::kScoreStride;
  const float* b = vectors + tile_x() * 4;
#pragma unroll 1
  for (int row = 0; row < Geometry::kRows; row += 4) {
    Pack<float> w[Geometry::kMicro];
#pragma unroll
    for (int i = 0; i < Geometry::kMicro; ++i) w[i] = load_pack(a + i * Geometry::kScoreStride + row);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int c = 0; c < Geometry::kMixed / 4; ++c) {
        const Pack<float> v = load_pack(b + (row + k) * Geometry::kStride + 64 * c);
#pragma unroll
        for (int i = 0; i < Geometry::kMicro; ++i) {
#pragma unroll
          for (int e = 0; e < 4; ++e)
            sums[i][4 * c + e] = fmaf(w[i].value[k], v.value[e], sums[i][4 * c + e]);
        }
      }
    }
  }
}

template <int kDim>
__device__ __forceinline__ void clear(Mixed<kDim>& sums) {
#pragma unroll
  for (int i = 0; i < Tile<kDim>::kMicro; ++i) {
#pragma unroll
    for (int c = 0; c < Tile<kDim>::kMixed; ++c) sums[i][c] = 0;
  }
}

// Writes the rows of tokens [begin, begin + kRows) that exist, each times its factor.
template <int kDim>
__device__ __forceinline__ void store_rows(const AttentionCall& call, void* data, const HeadRows& dst,
                                           int begin, const Mixed<kDim>& sums,
                                           const float (&factor)[Tile<kDim>::kMicro]) {
#pragma unroll
  for (int i = 0; i < Tile<kDim>::kMicro; ++i) {
    const int token = begin + tile_y() * Tile<kDim>::kMicro + i;
    if (token >= call.tokens) continue;
#pragma unroll
    for (int c = 0; c < Tile<kDim>::kMixed; ++c) {
      const int column = c / 4 * 64 + tile_x() * 4 + c % 4;
      if (column < call.head_dim)
        store_element(data, call.dtype, dst.first + token * dst.stride + column, sums[i][c] * factor[i]);
    }
  }
}

// Over the 16 lanes that share a row.
__device__ __forceinline__ float row_max(float x) {
  for (int step = 8; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}
__device__ __forceinline__ float row_sum(float x) {
  for (int step = 8; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// Calls fn with the smallest padded size that holds a head, as std::integral_constant.
template <typename Fn>
void for_head_dim(int64_t head_dim, Fn&& fn) {
  if (head_dim <= 64) return fn(std::integral_constant<int, 64>());
  if (head_dim <= 128) return fn(std::integral_constant<int, 128>());
  fn(std::integral_constant<int, 256>());
}

inline bool is_tiled_attention(const TensorType& qkv, const Attrs& attrs) {
  if (!is_storage(qkv.dtype) || !are_packed_heads(qkv, attrs)) return false;
  const int64_t head_dim = packed_heads(qkv, attrs).head_dim;
  return head_dim > 0 && head_dim <= kMaxHeadDim;
}

// `segments` is an input of the op, where there is one.
inline AttentionCall attention_call(const TensorType& qkv, const Attrs& attrs, const int* segments) {
  const PackedHeads packed = packed_heads(qkv, attrs);
  const double scale = attrs.real_or("scale", 1 / std::sqrt(static_cast<double>(packed.head_dim)));
  return {.dtype = qkv.dtype,
          .batch = static_cast<int>(packed.batch),
          .tokens = static_cast<int>(packed.tokens),
          .heads = static_cast<int>(packed.heads),
          .kv_heads = static_cast<int>(packed.kv_heads),
          .head_dim = static_cast<int>(packed.head_dim),
          .causal = attrs.integer("causal") != 0,
          .scale = static_cast<float>(scale),
          .window = static_cast<int>(std::min(packed.tokens, attrs.integer_or("window", packed.tokens))),
          .cap = static_cast<float>(attrs.real_or("softcap", 0)),
          .segments = segments};
}

}  // namespace tandem::cuda
