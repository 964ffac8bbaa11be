// With p = exp(score - lse) made anew from queries and keys, and d = dout . out:
//   dscore = p (dout . v - d),   dq = sum of dscore k,   dk = sum of dscore q,   dv = sum of p dout.
// A block has 128 rows, queries or keys, and goes over all columns they meet, keys or queries, 64 at a time.
// A warpgroup has 64 of the rows; scores and their gradients come out of the matrix units in the very
// registers in which the next product wants them as left factors, so they go nowhere. For that, scores are
// made twice: seven products instead of five, but nothing is written that another block adds to, and sums
// have one order.
#include <cudaTypedefs.h>

#include <cmath>
#include <numbers>
#include <type_traits>

#include "tandem/kernels/cuda/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/hopper.cuh"
#include "tandem/kernels/cuda/hopper_attention_grad.h"

namespace tandem::cuda {
namespace {

using hopper::Barrier;
using hopper::kTileBytes;
using hopper::kTileSide;
using hopper::kWarpgroup;

constexpr int kRowTiles = 2;  // and warpgroups that compute
constexpr int kRows = kRowTiles * kTileSide;
constexpr int kThreads = (kRowTiles + 1) * kWarpgroup;  // one more warpgroup, to load
constexpr int kStages = 6;
// A warpgroup waits for a tile while it holds the one before its own, and may have skipped others in between.
static_assert(kStages > 2 * kRowTiles);

// A tile of queries: what their scores are reduced by, in powers of two, and d.
struct QueryStats {
  float log2_sum[kTileSide];
  float dot[kTileSide];
};

struct Shape {
  int batch, time, heads, kv_heads;
  bool causal;
  float scale;

  __host__ __device__ int tiles() const { return (time + kTileSide - 1) / kTileSide; }
  __host__ __device__ int row_blocks() const { return (time + kRows - 1) / kRows; }
  __host__ __device__ int blocks(int of_heads) const { return row_blocks() * batch * of_heads; }
  __host__ __device__ int width() const { return (heads + 2 * kv_heads) * kTileSide; }
  // The tiles of queries before those of this head.
  __host__ __device__ int64_t tiles_before(int64_t sequence, int head) const {
    return (sequence * heads + head) * tiles();
  }
};

struct Stage {
  alignas(1024) std::byte qk[kTileBytes];  // keys, or queries
  std::byte vo[kTileBytes];                // values, or gradients of the output
};

struct Shared {
  std::byte row_qk[kRowTiles][kTileBytes];
  std::byte row_vo[kRowTiles][kTileBytes];
  Stage stage[kStages];
  QueryStats stats[kStages];  // of the columns, where they are queries
  Barrier rows_there, there[kStages], used[kStages];
};

// A place in the ring of stages, and the parity of the phase in which its barriers are.
struct Ring {
  int stage = 0;
  uint32_t parity = 0;

  [[maybe_unused]] __device__ void advance() {  // other GPUs have no use for it
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// Which rows a block has, and which columns they meet.
template <bool kKeyRows>
struct Work {
  int sequence, kv_head, first_head, num_heads;  // query heads
  int row_begin;
  int first_tile, end_tile;  // of columns

  __device__ Work(const Shape& shape, int block) {
    const int group = shape.heads / shape.kv_heads;
    const int heads = kKeyRows ? shape.kv_heads : shape.heads;
    const int of_all = block % (shape.batch * heads), nth = block / (shape.batch * heads);
    const int head = of_all % heads;
    sequence = of_all / heads;
    kv_head = kKeyRows ? head : head / group;
    first_head = kKeyRows ? head * group : head;
    num_heads = kKeyRows ? group : 1;
    // Those with the most to do come first: the last queries, the first keys.
    row_begin = (kKeyRows ? nth : shape.row_blocks() - 1 - nth) * kRows;
    first_tile = kKeyRows && shape.causal ? row_begin / kTileSide : 0;
    end_tile =
        !kKeyRows && shape.causal ? min(shape.tiles(), row_begin / kTileSide + kRowTiles) : shape.tiles();
  }
};

struct Tensors {
  const QueryStats* stats;
  void* dqkv;
};

template <bool kKeyRows>
__device__ __forceinline__ void load_all(const Shape& shape, const Work<kKeyRows>& work, Shared& shared,
                                         const CUtensorMap& qkv, const CUtensorMap& dout,
                                         const QueryStats* stats) {
  const int key_column = (shape.heads + work.kv_head) * kTileSide;
  const int value_column = key_column + shape.kv_heads * kTileSide;
  shared.rows_there.arrive_expecting(2 * kRowTiles * kTileBytes);
  for (int i = 0; i < kRowTiles; ++i) {
    const int row = work.row_begin + i * kTileSide;
    load_tile(shared.row_qk[i], qkv, shared.rows_there, kKeyRows ? key_column : work.first_head * kTileSide,
              row, work.sequence);
    load_tile(shared.row_vo[i], kKeyRows ? qkv : dout, shared.rows_there,
              kKeyRows ? value_column : work.first_head * kTileSide, row, work.sequence);
  }
  Ring ring;
  for (int head = work.first_head; head < work.first_head + work.num_heads; ++head) {
    for (int tile = work.first_tile; tile < work.end_tile; ++tile) {
      const int stage = ring.stage;
      Barrier& there = shared.there[stage];
      shared.used[stage].wait(ring.parity ^ 1);
      there.arrive_expecting(2 * kTileBytes + (kKeyRows ? sizeof(QueryStats) : 0));
      const int row = tile * kTileSide;
      load_tile(shared.stage[stage].qk, qkv, there, kKeyRows ? head * kTileSide : key_column, row,
                work.sequence);
      load_tile(shared.stage[stage].vo, kKeyRows ? dout : qkv, there,
                kKeyRows ? head * kTileSide : value_column, row, work.sequence);
      if constexpr (kKeyRows)
        load_bytes(&shared.stats[stage], stats + shape.tiles_before(work.sequence, head) + tile,
                   sizeof(QueryStats), there);
      ring.advance();
    }
  }
}

// A warpgroup's rows of a result, through shared memory into rows of dqkv.
template <typename T>
__device__ __forceinline__ void store_rows(std::byte* tile, const hopper::Sums& sums, float scale, T* out,
                                           int64_t stride, int rows) {
  hopper::sync_warpgroup();  // the tile has been read by all
  const int row = hopper::sums_row();
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int at = hopper::tile_offset(row + i % 2 * 8, i / 2 * 8 + hopper::sums_column());
    *reinterpret_cast<uint32_t*>(tile + at) =
        hopper::pack_pair<T>(sums.value[2 * i] * scale, sums.value[2 * i + 1] * scale);
  }
  __syncwarp();  // a warp reads the 16 rows it wrote
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = first + 4 * i + lane / 8, column = lane % 8 * 8;
    if (r < rows)
      *reinterpret_cast<int4*>(out + r * stride + column) =
          *reinterpret_cast<const int4*>(tile + hopper::tile_offset(r, column));
  }
}

// A warpgroup's 64 rows. Products are started half a tile ahead, so that the matrix units have work while the
// threads make weights of scores, and again while they make gradients of scores:
//   threads:       weights                      gradients of scores
//   matrix units:  sums_qk before, gradients    sums_v, next scores
template <typename T, bool kKeyRows>
struct Rows {
  const Shape& shape;
  const Work<kKeyRows>& work;
  Shared& shared;
  const int part = hopper::warpgroup();
  const int own_tile = work.row_begin / kTileSide + part;
  const float to_log2 = shape.scale * std::numbers::log2e_v<float>;
  // Those of the block's columns that the own rows meet.
  const int first_tile = kKeyRows && shape.causal ? own_tile : work.first_tile;
  const int end_tile = !kKeyRows && shape.causal ? own_tile + 1 : work.end_tile;

  Ring ring;
  int tile = first_tile;
  int previous = -1;                  // the stage before, which sums_qk may still need
  float row_log2_sum[2], row_dot[2];  // of the rows, where they are queries

  __device__ __forceinline__ void release(int stage) const {
    if (threadIdx.x % 32 == 0) shared.used[stage].arrive();
  }
  __device__ __forceinline__ void skip(int stages) {
    for (; stages > 0; --stages) {
      shared.there[ring.stage].wait(ring.parity);
      release(ring.stage);
      ring.advance();
    }
  }
  __device__ __forceinline__ uint64_t column_qk() const {
    return hopper::tile_descriptor(shared.stage[ring.stage].qk);
  }
  __device__ __forceinline__ uint64_t column_vo() const {
    return hopper::tile_descriptor(shared.stage[ring.stage].vo);
  }

  __device__ __forceinline__ void begin() {
    skip(first_tile - work.first_tile);
    shared.there[ring.stage].wait(ring.parity);
  }
  __device__ __forceinline__ void next() {
    ring.advance();
    if (++tile == end_tile) {  // the group's next head
      tile = first_tile;
      skip(first_tile - work.first_tile);
    }
    shared.there[ring.stage].wait(ring.parity);
  }

  __device__ __forceinline__ void mask(hopper::Sums& score) const {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int row = hopper::sums_row() + i % 4 / 2 * 8, column = i / 4 * 8 + hopper::sums_column() + i % 2;
      if (kKeyRows ? row > column : column > row) score.value[i] = -INFINITY;
    }
  }
  // Two of the columns' numbers for each group of eight, where the columns are queries.
  __device__ __forceinline__ void load_pairs(const float* of_columns, float2 (&pairs)[8]) const {
    if constexpr (kKeyRows) {
#pragma unroll
      for (int g = 0; g < 8; ++g)
        pairs[g] = *reinterpret_cast<const float2*>(of_columns + g * 8 + hopper::sums_column());
    }
  }
  __device__ __forceinline__ void make_weights(const hopper::Sums& score, const float2 (&log2_sum)[8],
                                               hopper::Sums& p, hopper::Factor& weights) const {
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      const int h = i / 2 % 2;
      const float2 reduce = kKeyRows ? log2_sum[i / 4] : float2{row_log2_sum[h], row_log2_sum[h]};
      p.value[i] = hopper::exp2_approx(fmaf(score.value[i], to_log2, -reduce.x));
      p.value[i + 1] = hopper::exp2_approx(fmaf(score.value[i + 1], to_log2, -reduce.y));
      if constexpr (kKeyRows) weights.pair[i / 2] = hopper::pack_pair<T>(p.value[i], p.value[i + 1]);
    }
  }
  __device__ __forceinline__ void make_dscores(const hopper::Sums& p, const hopper::Sums& dscore,
                                               const float2 (&dot)[8], hopper::Factor& dscores) const {
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      const int h = i / 2 % 2;
      const float2 d = kKeyRows ? dot[i / 4] : float2{row_dot[h], row_dot[h]};
      dscores.pair[i / 2] = hopper::pack_pair<T>(p.value[i] * (dscore.value[i] - d.x),
                                                 p.value[i + 1] * (dscore.value[i + 1] - d.y));
    }
  }

  // Takes scores that are there, and makes the next, if there are any. What is not done when it returns is
  // sums_qk.
  template <bool kLast>
  __device__ __forceinline__ void take_tile(hopper::Sums& score, hopper::Sums& sums_qk,
                                            hopper::Sums& sums_v) {
    const int stage = ring.stage;
    const QueryStats& stats = shared.stats[stage];
    const uint64_t qk = column_qk(), vo = column_vo();
    const bool diagonal = shape.causal && tile == own_tile, begun = previous >= 0;
    hopper::Sums p, dscore;
    hopper::Factor weights, dscores;
    float2 log2_sum[8], dot[8];
    load_pairs(stats.log2_sum, log2_sum);
    hopper::begin_products();
    hopper::start_scores<T>(dscore, hopper::tile_descriptor(shared.row_vo[part]), vo);
    hopper::end_product_group();
    if (diagonal) mask(score);
    make_weights(score, log2_sum, p, weights);
    if constexpr (!kLast) next();
    if constexpr (kKeyRows) hopper::are_there(weights);
    hopper::begin_products();
    if constexpr (kKeyRows) hopper::start_mixing<T>(sums_v, weights, vo, begun);
    if constexpr (!kLast)
      hopper::start_scores<T>(score, hopper::tile_descriptor(shared.row_qk[part]), column_qk());
    hopper::end_product_group();

    load_pairs(stats.dot, dot);
    hopper::wait_products<1>();
    hopper::are_there(dscore);
    if (begun) release(previous);
    previous = stage;
    make_dscores(p, dscore, dot, dscores);
    hopper::are_there(dscores);
    hopper::begin_products();
    hopper::start_mixing<T>(sums_qk, dscores, qk, begun);
    hopper::end_product_group();
    hopper::wait_products<1>();
    hopper::are_there(score);
  }

  __device__ __forceinline__ void compute(const Tensors& tensors) {
    shared.rows_there.wait(0);
    if (own_tile >= shape.tiles()) {  // there are none
      skip(work.num_heads * (work.end_tile - work.first_tile));
      return;
    }
    if constexpr (!kKeyRows) {
      const QueryStats& of_rows =
          tensors.stats[shape.tiles_before(work.sequence, work.first_head) + own_tile];
      for (int h = 0; h < 2; ++h) {
        row_log2_sum[h] = of_rows.log2_sum[hopper::sums_row() + 8 * h];
        row_dot[h] = of_rows.dot[hopper::sums_row() + 8 * h];
      }
    }
    begin();
    hopper::Sums score, sums_qk, sums_v;  // dq, or dk and dv
    hopper::begin_products();
    hopper::start_scores<T>(score, hopper::tile_descriptor(shared.row_qk[part]), column_qk());
    hopper::end_product_group();
    hopper::wait_products<0>();
    hopper::are_there(score);
    for (int left = work.num_heads * (end_tile - first_tile); left > 1; --left)
      take_tile<false>(score, sums_qk, sums_v);
    take_tile<true>(score, sums_qk, sums_v);
    hopper::wait_products<0>();
    hopper::are_there(sums_qk);
    if constexpr (kKeyRows) hopper::are_there(sums_v);

    const int begin = own_tile * kTileSide, rows = min(kTileSide, shape.time - begin);
    T* out = static_cast<T*>(tensors.dqkv) + (int64_t{work.sequence} * shape.time + begin) * shape.width();
    const int key_column = (shape.heads + work.kv_head) * kTileSide;
    store_rows(shared.row_qk[part], sums_qk, shape.scale,
               out + (kKeyRows ? key_column : work.first_head * kTileSide), shape.width(), rows);
    if constexpr (kKeyRows)
      store_rows(shared.row_vo[part], sums_v, 1.0f, out + key_column + shape.kv_heads * kTileSide,
                 shape.width(), rows);
  }
};

template <typename T, bool kKeyRows>
__device__ __forceinline__ void run_block(const Shape& shape, int block, Shared& shared,
                                          const CUtensorMap& qkv, const CUtensorMap& dout,
                                          const Tensors& tensors) {
  const Work<kKeyRows> work(shape, block);
  if (hopper::warpgroup() == kRowTiles) {
    hopper::give_registers<24>();
    if (threadIdx.x == kRowTiles * kWarpgroup) load_all(shape, work, shared, qkv, dout, tensors.stats);
  } else {
    hopper::take_registers<240>();
    Rows<T, kKeyRows>{shape, work, shared}.compute(tensors);
  }
}

// Blocks for keys, which have more to do, and then blocks for queries.
template <typename T>
__global__ void __launch_bounds__(kThreads, 1)
    attention_grad(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap dout,
                   const Shape shape, const Tensors tensors) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) std::byte memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    if (hopper::shared_address(memory) % 1024 != 0) __trap();  // swizzled tiles would be read as others
    shared.rows_there.init(1);
    for (int i = 0; i < kStages; ++i) {
      shared.there[i].init(1);
      shared.used[i].init(kRowTiles * kWarpgroup / 32);
    }
    hopper::publish_barriers();
  }
  __syncthreads();
  const int block = static_cast<int>(blockIdx.x), key_blocks = shape.blocks(shape.kv_heads);
  if (block < key_blocks) {
    run_block<T, true>(shape, block, shared, qkv, dout, tensors);
  } else {
    run_block<T, false>(shape, block - key_blocks, shared, qkv, dout, tensors);
  }
#endif
}

// Eight lanes make the dot product of one token and head.
template <typename T>
__global__ void __launch_bounds__(256)
    query_stats(const Shape shape, const T* dout, const T* out, const float* lse, QueryStats* stats) {
  const int64_t row = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 8;
  const int lane = static_cast<int>(threadIdx.x) % 8;
  const int padded = shape.tiles() * kTileSide;
  const int head = static_cast<int>(row % shape.heads);
  const int token = static_cast<int>(row / shape.heads % padded);
  const int64_t sequence = row / shape.heads / padded;
  if (sequence >= shape.batch) return;  // all eight lanes
  // A query beyond the sequence has no weights.
  float sum = 0, log2_sum = INFINITY;
  if (token < shape.time) {
    const int64_t at = ((sequence * shape.time + token) * shape.heads + head) * kTileSide + lane * 8;
    const Pack<T> a = load_pack(dout + at), b = load_pack(out + at);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(to_float(a.value[i]), to_float(b.value[i]), sum);
    log2_sum = lse[(sequence * shape.heads + head) * shape.time + token] * std::numbers::log2e_v<float>;
  }
  for (int step = 4; step > 0; step /= 2)
    sum += __shfl_xor_sync(0xffu << (threadIdx.x % 32 / 8 * 8), sum, step);
  if (lane != 0) return;
  QueryStats& tile = stats[shape.tiles_before(sequence, head) + token / kTileSide];
  tile.log2_sum[token % kTileSide] = log2_sum;
  tile.dot[token % kTileSide] = sum;
}

// Rows of `width` elements, `time` of them a sequence, in tiles.
CUtensorMap tile_map(const void* data, DType type, const Shape& shape, int width) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                           &found),
          "cuTensorMapEncodeTiled");
    if (found != cudaDriverEntryPointSuccess)
      throw DeviceError("cuda: the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  const auto row_bytes = static_cast<cuuint64_t>(width * dtype_bytes(type));
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(shape.time),
                                static_cast<cuuint64_t>(shape.batch)};
  const cuuint64_t strides[] = {row_bytes, row_bytes * static_cast<cuuint64_t>(shape.time)};
  const cuuint32_t box[] = {kTileSide, kTileSide, 1}, steps[] = {1, 1, 1};
  CUtensorMap map{};
  const CUresult status = encode(
      &map, type == DType::BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3,
      const_cast<void*>(data), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw DeviceError("cuda: cuTensorMapEncodeTiled: error {}", static_cast<int>(status));
  return map;
}

Shape shape_of(const FusedAttention& s) {
  return {static_cast<int>(s.batch),
          static_cast<int>(s.time),
          static_cast<int>(s.heads),
          static_cast<int>(s.kv_heads),
          s.causal,
          1.0f / std::sqrt(static_cast<float>(s.head_dim))};
}

int64_t tiles_of_queries(const Shape& s) { return s.tiles_before(s.batch, 0); }

}  // namespace

bool hopper_attention_grad_supported(const FusedAttention& shape) {
  return is_half(shape.type) && shape.time > 0 && shape.head_dim == kTileSide;
}

size_t hopper_attention_grad_workspace(const FusedAttention& shape) {
  return static_cast<size_t>(tiles_of_queries(shape_of(shape))) * sizeof(QueryStats);
}

void run_hopper_attention_grad(const FusedAttention& fused, const FusedAttentionGradTensors& in,
                               std::span<std::byte> workspace, cudaStream_t queue) {
  const Shape shape = shape_of(fused);
  TANDEM_CHECK(workspace.size() >= hopper_attention_grad_workspace(fused));
  auto* stats = reinterpret_cast<QueryStats*>(workspace.data());
  const CUtensorMap qkv = tile_map(in.qkv, fused.type, shape, shape.width());
  const CUtensorMap dout = tile_map(in.dout, fused.type, shape, shape.heads * kTileSide);
  const auto run = [&]<typename T>(T*) {
    const int64_t blocks = tiles_of_queries(shape) * kTileSide * 8 / 256;
    query_stats<T><<<static_cast<unsigned>(blocks), 256, 0, queue>>>(
        shape, static_cast<const T*>(in.dout), static_cast<const T*>(in.out),
        static_cast<const float*>(in.lse), stats);
    check_launch("attention_grad");
    constexpr int kBytes = sizeof(Shared);
    check(cudaFuncSetAttribute(attention_grad<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
          "attention_grad");
    const auto all = static_cast<unsigned>(shape.blocks(shape.kv_heads) + shape.blocks(shape.heads));
    attention_grad<T><<<all, kThreads, kBytes, queue>>>(qkv, dout, shape, {stats, in.dqkv});
    check_launch("attention_grad");
  };
  if (fused.type == DType::BF16) {
    run(static_cast<__nv_bfloat16*>(nullptr));
  } else {
    run(static_cast<__half*>(nullptr));
  }
}

}  // namespace tandem::cuda
