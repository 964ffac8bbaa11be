// With p = exp(score - lse) made anew from queries and keys, and d = dout . out:
//   dscore = p (dout . v - d),   dq = sum of dscore k,   dk = sum of dscore q,   dv = sum of p dout.
// Pieces of the work have 128 rows, queries or keys, and go over all columns these meet, keys or queries, 64
// at a time. A warpgroup has 64 of the rows; scores and their gradients come out of the matrix units in the
// very registers in which the next product wants them as left factors, so they go nowhere. For that, scores
// are made twice: seven products instead of five, but nothing is written that another piece adds to, and sums
// have one order. There is a block for each multiprocessor; it loads the next piece while it computes one.
#include <cudaTypedefs.h>

#include <algorithm>
#include <cmath>
#include <numbers>

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
constexpr int kStages = 6, kRowBuffers = 2;
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
  __host__ __device__ int pieces(int of_heads) const { return row_blocks() * batch * of_heads; }
  __host__ __device__ int width() const { return (heads + 2 * kv_heads) * kTileSide; }
  // The tiles of queries before those of this head.
  __host__ __device__ int64_t tiles_before(int64_t sequence, int head) const {
    return (sequence * heads + head) * tiles();
  }
};

struct Stage {
  alignas(1024) std::byte qk[kTileBytes];  // queries, or keys
  std::byte vo[kTileBytes];                // gradients of the output, or values
};

struct Shared {
  Stage rows[kRowBuffers][kRowTiles];
  Stage stage[kStages];
  QueryStats stats[kStages];  // of the columns, where they are queries
  Barrier rows_there[kRowBuffers], rows_used[kRowBuffers], there[kStages], used[kStages];
};

// Where a thread is in the two rings.
struct Rings {
  hopper::Ring<kStages> columns;
  hopper::Ring<kRowBuffers> rows;
};

// Which rows a piece has, and which columns they meet.
template <bool kKeyRows>
struct Work {
  int sequence, kv_head, first_head, num_heads;  // query heads
  int row_begin;
  int first_tile, end_tile;  // of columns

  __device__ Work(const Shape& shape, int piece) {
    const int group = shape.heads / shape.kv_heads;
    const int heads = kKeyRows ? shape.kv_heads : shape.heads;
    const int of_all = piece % (shape.batch * heads), nth = piece / (shape.batch * heads);
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

template <bool kKeyRows>
__device__ __forceinline__ void load_piece(const Shape& shape, const Work<kKeyRows>& work, Shared& shared,
                                           Rings& rings, const CUtensorMap& qkv, const CUtensorMap& dout,
                                           const QueryStats* stats) {
  const int key_column = (shape.heads + work.kv_head) * kTileSide;
  const int value_column = key_column + shape.kv_heads * kTileSide;
  const int buffer = rings.rows.at;
  Barrier& rows_there = shared.rows_there[buffer];
  shared.rows_used[buffer].wait(rings.rows.parity ^ 1);
  rows_there.arrive_expecting(kRowTiles * sizeof(Stage));
#pragma unroll 1
  for (int i = 0; i < kRowTiles; ++i) {
    Stage& rows = shared.rows[buffer][i];
    const int row = work.row_begin + i * kTileSide, query_column = work.first_head * kTileSide;
    load_tile(rows.qk, qkv, rows_there, kKeyRows ? key_column : query_column, row, work.sequence);
    load_tile(rows.vo, kKeyRows ? qkv : dout, rows_there, kKeyRows ? value_column : query_column, row,
              work.sequence);
  }
  rings.rows.advance();
#pragma unroll 1
  for (int head = work.first_head; head < work.first_head + work.num_heads; ++head) {
#pragma unroll 1
    for (int tile = work.first_tile; tile < work.end_tile; ++tile) {
      const int at = rings.columns.at;
      Barrier& there = shared.there[at];
      shared.used[at].wait(rings.columns.parity ^ 1);
      there.arrive_expecting(sizeof(Stage) + (kKeyRows ? sizeof(QueryStats) : 0));
      const int row = tile * kTileSide, query_column = head * kTileSide;
      load_tile(shared.stage[at].qk, qkv, there, kKeyRows ? query_column : key_column, row, work.sequence);
      load_tile(shared.stage[at].vo, kKeyRows ? dout : qkv, there, kKeyRows ? query_column : value_column,
                row, work.sequence);
      if constexpr (kKeyRows)
        load_bytes(&shared.stats[at], stats + shape.tiles_before(work.sequence, head) + tile,
                   sizeof(QueryStats), there);
      rings.columns.advance();
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
  Rings& rings;
  const int part = hopper::warpgroup();
  Stage& rows = shared.rows[rings.rows.at][part];
  const int own_tile = work.row_begin / kTileSide + part;
  const float to_log2 = shape.scale * std::numbers::log2e_v<float>;
  // Those of the piece's columns that the own rows meet.
  const int first_tile = kKeyRows && shape.causal ? own_tile : work.first_tile;
  const int end_tile = !kKeyRows && shape.causal ? own_tile + 1 : work.end_tile;

  int tile = first_tile;
  int previous = -1;                  // the stage before, which sums_qk may still need
  float row_log2_sum[2], row_dot[2];  // of the rows, where they are queries

  // What the warp has read may be overwritten.
  __device__ __forceinline__ static void release(Barrier& used) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) used.arrive();
  }
  __device__ __forceinline__ void wait() const { shared.there[rings.columns.at].wait(rings.columns.parity); }
  __device__ __forceinline__ void skip(int stages) {
    for (; stages > 0; --stages) {
      wait();
      release(shared.used[rings.columns.at]);
      rings.columns.advance();
    }
  }
  __device__ __forceinline__ Stage& columns() const { return shared.stage[rings.columns.at]; }
  __device__ __forceinline__ void start_scores(hopper::Sums& score) const {
    hopper::start_scores<T>(score, hopper::tile_descriptor(rows.qk), hopper::tile_descriptor(columns().qk));
  }
  __device__ __forceinline__ void next() {
    rings.columns.advance();
    if (++tile == end_tile) {  // the group's next head
      tile = first_tile;
      skip(first_tile - work.first_tile);
    }
    wait();
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
    const int stage = rings.columns.at;
    const QueryStats& stats = shared.stats[stage];
    const uint64_t qk = hopper::tile_descriptor(columns().qk), vo = hopper::tile_descriptor(columns().vo);
    const bool diagonal = shape.causal && tile == own_tile, begun = previous >= 0;
    hopper::Sums p, dscore;
    hopper::Factor weights, dscores;
    float2 log2_sum[8], dot[8];
    load_pairs(stats.log2_sum, log2_sum);
    hopper::begin_products();
    hopper::start_scores<T>(dscore, hopper::tile_descriptor(rows.vo), vo);
    hopper::end_product_group();
    if (diagonal) mask(score);
    make_weights(score, log2_sum, p, weights);
    if constexpr (!kLast) next();
    if constexpr (kKeyRows) hopper::are_there(weights);
    hopper::begin_products();
    if constexpr (kKeyRows) hopper::start_mixing<T>(sums_v, weights, vo, begun);
    if constexpr (!kLast) start_scores(score);
    hopper::end_product_group();

    load_pairs(stats.dot, dot);
    hopper::wait_products<1>();
    hopper::are_there(dscore);
    if (begun) release(shared.used[previous]);
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
    hopper::Sums score, sums_qk, sums_v;  // dq, or dk and dv
    if constexpr (!kKeyRows) {
      const QueryStats& of_rows =
          tensors.stats[shape.tiles_before(work.sequence, work.first_head) + own_tile];
      for (int h = 0; h < 2; ++h) {
        row_log2_sum[h] = of_rows.log2_sum[hopper::sums_row() + 8 * h];
        row_dot[h] = of_rows.dot[hopper::sums_row() + 8 * h];
      }
    }
    skip(first_tile - work.first_tile);
    wait();
    hopper::begin_products();
    start_scores(score);
    hopper::end_product_group();
    hopper::wait_products<0>();
    hopper::are_there(score);
    for (int left = work.num_heads * (end_tile - first_tile); left > 1; --left)
      take_tile<false>(score, sums_qk, sums_v);
    take_tile<true>(score, sums_qk, sums_v);
    hopper::wait_products<0>();
    hopper::are_there(sums_qk);
    if constexpr (kKeyRows) hopper::are_there(sums_v);
    release(shared.used[previous]);
    rings.columns.advance();
    skip(work.end_tile - end_tile);

    const int begin = own_tile * kTileSide, count = min(kTileSide, shape.time - begin);
    T* out = static_cast<T*>(tensors.dqkv) + (int64_t{work.sequence} * shape.time + begin) * shape.width();
    const int key_column = (shape.heads + work.kv_head) * kTileSide;
    store_rows(rows.qk, sums_qk, shape.scale, out + (kKeyRows ? key_column : work.first_head * kTileSide),
               shape.width(), count);
    if constexpr (kKeyRows)
      store_rows(rows.vo, sums_v, 1.0f, out + key_column + shape.kv_heads * kTileSide, shape.width(), count);
  }

  __device__ __forceinline__ void run(const Tensors& tensors) {
    shared.rows_there[rings.rows.at].wait(rings.rows.parity);
    if (own_tile < shape.tiles()) {
      compute(tensors);
    } else {  // there are none
      skip(work.num_heads * (work.end_tile - work.first_tile));
    }
    hopper::hand_to_copies();
    release(shared.rows_used[rings.rows.at]);
    rings.rows.advance();
  }
};

template <typename T, bool kKeyRows>
__global__ void __launch_bounds__(kThreads, 1)
    attention_grad(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap dout,
                   const Shape shape, const Tensors tensors) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) std::byte memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    if (hopper::shared_address(memory) % 1024 != 0) __trap();  // swizzled tiles would be read as others
    constexpr int kWarps = kRowTiles * kWarpgroup / 32;        // that compute
    for (Barrier& there : shared.rows_there) there.init(1);
    for (Barrier& used : shared.rows_used) used.init(kWarps);
    for (Barrier& there : shared.there) there.init(1);
    for (Barrier& used : shared.used) used.init(kWarps);
    hopper::publish_barriers();
  }
  __syncthreads();
  Rings rings;
  const int pieces = shape.pieces(kKeyRows ? shape.kv_heads : shape.heads);
  if (hopper::warpgroup() == kRowTiles) {
    hopper::give_registers<24>();
    if (threadIdx.x != kRowTiles * kWarpgroup) return;
    for_each_piece(pieces, [&](int piece) {
      load_piece(shape, Work<kKeyRows>(shape, piece), shared, rings, qkv, dout, tensors.stats);
    });
  } else {
    hopper::take_registers<240>();
    for_each_piece(pieces, [&](int piece) {
      const Work<kKeyRows> work(shape, piece);
      Rows<T, kKeyRows>{shape, work, shared, rings}.run(tensors);
    });
  }
#else
  __trap();  // not chosen for other GPUs
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

template <typename T, bool kKeyRows>
void launch(const Shape& shape, const CUtensorMap& qkv, const CUtensorMap& dout, const Tensors& tensors,
            cudaStream_t queue) {
  constexpr int kBytes = sizeof(Shared);
  const auto kernel = attention_grad<T, kKeyRows>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "attention_grad");
  const int blocks = std::min(shape.pieces(kKeyRows ? shape.kv_heads : shape.heads),
                              device_attribute(cudaDevAttrMultiProcessorCount));
  kernel<<<static_cast<unsigned>(blocks), kThreads, kBytes, queue>>>(qkv, dout, shape, tensors);
  check_launch("attention_grad");
}

int64_t tiles_of_queries(const Shape& s) { return s.tiles_before(s.batch, 0); }

}  // namespace

bool hopper_attention_grad_supported(const FusedAttention& shape) {
  // The zeros behind a last tile that is not full are keys to queries that see all: a causal mask hides them.
  const bool whole = shape.causal || shape.time % kTileSide == 0;
  return is_half(shape.type) && shape.time > 0 && shape.head_dim == kTileSide && whole;
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
    const int64_t rows = tiles_of_queries(shape) * kTileSide;
    query_stats<T><<<static_cast<unsigned>(rows * 8 / 256), 256, 0, queue>>>(
        shape, static_cast<const T*>(in.dout), static_cast<const T*>(in.out),
        static_cast<const float*>(in.lse), stats);
    check_launch("attention_grad");
    launch<T, true>(shape, qkv, dout, {stats, in.dqkv}, queue);
    launch<T, false>(shape, qkv, dout, {stats, in.dqkv}, queue);
  };
  if (fused.type == DType::BF16) {
    run(static_cast<__nv_bfloat16*>(nullptr));
  } else {
    run(static_cast<__half*>(nullptr));
  }
}

}  // namespace tandem::cuda
