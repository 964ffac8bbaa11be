// With p = exp(score - lse) made anew from queries and keys, and d = dout . out:
//   dscore = p (dout . v - d),   dq = sum of dscore k,   dk = sum of dscore q,   dv = sum of p dout.
// Pieces of the work have 128 rows, queries or keys, and go over all columns these meet, keys or queries, 64
// at a time. A warpgroup has 64 of the rows; scores and their gradients come out of the matrix units in the
// very registers in which the next product wants them as left factors, so they go nowhere. For that, scores
// are made twice: seven products instead of five, but nothing is written that another piece adds to, and sums
// have one order. The queries' kernel runs first, makes d of its rows and leaves it to the keys'. There is a
// block for each multiprocessor; it loads the next piece while it computes one.
#include <cmath>
#include <numbers>

#include "tandem/kernels/cuda/attention/hopper_attention_grad.h"
#include "tandem/kernels/cuda/attention/hopper_heads.cuh"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/gemm/bias_grad.h"

namespace tandem::cuda {
namespace {

using hopper::AttentionShape;
using hopper::Barrier;
using hopper::kTileBytes;
using hopper::kTileSide;
using hopper::kWarpgroup;
using hopper::TilePair;

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

// Where a head's tiles of QueryStats begin, and its logarithms of sums.
__host__ __device__ int64_t stats_tiles_before(const AttentionShape& shape, int64_t sequence, int head) {
  return (sequence * shape.heads + head) * shape.tiles();
}
__host__ __device__ int64_t lse_before(const AttentionShape& shape, int64_t sequence, int head) {
  return (sequence * shape.heads + head) * shape.time;
}

struct alignas(1024) RowTiles {
  TilePair pair;
  std::byte out[kTileBytes];  // where the rows are queries
};

struct Shared {
  RowTiles rows[kRowBuffers][kRowTiles];
  TilePair stage[kStages];
  QueryStats stats[kStages];  // of the columns, where they are queries
  float column_sums[kRowTiles][kWarpgroup / 32][kTileSide];
  Barrier rows_there[kRowBuffers], rows_used[kRowBuffers], there[kStages], used[kStages];
};

// What the warp has read of a stage may be overwritten. One lane could say so for all of them. racecheck
// believes it only of the lanes that read a number last, so these do.
constexpr int kReleasingLanes = 4;
__device__ __forceinline__ void release(Barrier& used) {
  __syncwarp();
  if (threadIdx.x % 32 >= 32 - kReleasingLanes) used.arrive();
}

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

  __device__ Work(const AttentionShape& shape, int piece) {
    const int group = shape.heads / shape.kv_heads;
    const int heads = kKeyRows ? shape.kv_heads : shape.heads;
    const int of_all = piece % (shape.batch * heads), nth = piece / (shape.batch * heads);
    const int head = of_all % heads;
    sequence = of_all / heads;
    kv_head = kKeyRows ? head : head / group;
    first_head = kKeyRows ? head * group : head;
    num_heads = kKeyRows ? group : 1;
    // Those with the most to do come first: the last queries, the first keys.
    row_begin = (kKeyRows ? nth : shape.blocks_of(kRows) - 1 - nth) * kRows;
    first_tile = kKeyRows && shape.causal ? row_begin / kTileSide : 0;
    end_tile =
        !kKeyRows && shape.causal ? min(shape.tiles(), row_begin / kTileSide + kRowTiles) : shape.tiles();
  }
};

template <bool kKeyRows>
__host__ __device__ int num_pieces(const AttentionShape& shape) {
  return shape.blocks_of(kRows) * shape.batch * (kKeyRows ? shape.kv_heads : shape.heads);
}

struct Tensors {
  const float* lse;
  QueryStats* stats;
  float* tile_sums;  // of dqkv's columns, [batch][tiles][width]; null: not asked for
  void* dqkv;
};

struct TileMaps {
  CUtensorMap qkv, out, dout;
};

template <bool kKeyRows>
__device__ __forceinline__ void load_piece(const AttentionShape& shape, const Work<kKeyRows>& work,
                                           Shared& shared, Rings& rings, const TileMaps& maps,
                                           const Tensors& tensors) {
  const int key_column = shape.key_column(work.kv_head), value_column = shape.value_column(work.kv_head);
  const int buffer = rings.rows.at;
  Barrier& rows_there = shared.rows_there[buffer];
  shared.rows_used[buffer].wait(rings.rows.parity ^ 1);
  rows_there.arrive_expecting(kRowTiles * (sizeof(TilePair) + (kKeyRows ? 0 : kTileBytes)));
#pragma unroll 1
  for (int i = 0; i < kRowTiles; ++i) {
    RowTiles& rows = shared.rows[buffer][i];
    const int row = work.row_begin + i * kTileSide, query_column = shape.query_column(work.first_head);
    load_tile(rows.pair.qk, maps.qkv, rows_there, kKeyRows ? key_column : query_column, row, work.sequence);
    load_tile(rows.pair.vo, kKeyRows ? maps.qkv : maps.dout, rows_there,
              kKeyRows ? value_column : query_column, row, work.sequence);
    if constexpr (!kKeyRows) {
      load_tile(rows.out, maps.out, rows_there, query_column, row, work.sequence);
      const float* lse = tensors.lse + lse_before(shape, work.sequence, work.first_head);
      for (int at = row; at < min(row + kTileSide, shape.time); at += 32) hopper::prefetch(lse + at);
    }
  }
  rings.rows.advance();
#pragma unroll 1
  for (int head = work.first_head; head < work.first_head + work.num_heads; ++head) {
#pragma unroll 1
    for (int tile = work.first_tile; tile < work.end_tile; ++tile) {
      const int at = rings.columns.at;
      Barrier& there = shared.there[at];
      shared.used[at].wait(rings.columns.parity ^ 1);
      there.arrive_expecting(sizeof(TilePair) + (kKeyRows ? sizeof(QueryStats) : 0));
      const int row = tile * kTileSide, query_column = shape.query_column(head);
      load_tile(shared.stage[at].qk, maps.qkv, there, kKeyRows ? query_column : key_column, row,
                work.sequence);
      load_tile(shared.stage[at].vo, kKeyRows ? maps.dout : maps.qkv, there,
                kKeyRows ? query_column : value_column, row, work.sequence);
      if constexpr (kKeyRows)
        load_bytes(&shared.stats[at], tensors.stats + stats_tiles_before(shape, work.sequence, head) + tile,
                   sizeof(QueryStats), there);
      rings.columns.advance();
    }
  }
}

// A warpgroup's 64 rows. Products are started half a tile ahead, so that the matrix units have work while the
// threads make weights of scores, and again while they make gradients of scores:
//   threads:       weights                      gradients of scores
//   matrix units:  sums_qk before, gradients    sums_v, next scores
template <typename T, bool kKeyRows>
struct Rows {
  const AttentionShape& shape;
  const Work<kKeyRows>& work;
  Shared& shared;
  Rings& rings;
  const int part = hopper::warpgroup();
  RowTiles& rows = shared.rows[rings.rows.at][part];
  const int own_tile = work.row_begin / kTileSide + part;
  const float to_log2 = shape.scale * std::numbers::log2e_v<float>;
  // Those of the piece's columns that the own rows meet.
  const int first_tile = kKeyRows && shape.causal ? own_tile : work.first_tile;
  const int end_tile = !kKeyRows && shape.causal ? own_tile + 1 : work.end_tile;

  int tile = first_tile;
  int previous = -1;                  // the stage before, which sums_qk may still need
  float row_log2_sum[2], row_dot[2];  // of the rows, where they are queries

  __device__ __forceinline__ void wait() const { shared.there[rings.columns.at].wait(rings.columns.parity); }
  __device__ __forceinline__ void skip(int stages) {
    for (; stages > 0; --stages) {
      wait();
      release(shared.used[rings.columns.at]);
      rings.columns.advance();
    }
  }
  __device__ __forceinline__ TilePair& columns() const { return shared.stage[rings.columns.at]; }
  __device__ __forceinline__ void start_scores(hopper::Sums& score) const {
    hopper::start_scores<T>(score, hopper::tile_descriptor(rows.pair.qk),
                            hopper::tile_descriptor(columns().qk));
  }
  __device__ __forceinline__ void next() {
    rings.columns.advance();
    if (++tile == end_tile) {  // the group's next head
      tile = first_tile;
      skip(first_tile - work.first_tile);
    }
    wait();
  }

  // Asked for early: it takes a while until they come.
  __device__ __forceinline__ void load_lse(const Tensors& tensors) {
    const float* lse = tensors.lse + lse_before(shape, work.sequence, work.first_head);
#pragma unroll
    for (int h = 0; h < 2; ++h) {  // a query beyond the sequence has no weights
      const int token = own_tile * kTileSide + hopper::sums_row() + 8 * h;
      row_log2_sum[h] = token < shape.time ? lse[token] : INFINITY;
    }
  }

  // The rows' numbers, where they are queries, for this kernel and, in memory, for the one of keys.
  __device__ __forceinline__ void make_stats(const Tensors& tensors) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) row_log2_sum[h] *= std::numbers::log2e_v<float>;
    // Of the warp's 16 rows, eight lanes make the dot product of one, four rows at a time.
    float sums[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16 + 4 * i + lane / 8;
      const int at = hopper::tile_offset(row, lane % 8 * 8);
      const Pack<T> dout = *reinterpret_cast<const Pack<T>*>(rows.pair.vo + at);
      const Pack<T> out = *reinterpret_cast<const Pack<T>*>(rows.out + at);
      sums[i] = 0;
#pragma unroll
      for (int k = 0; k < 8; ++k) sums[i] = fmaf(to_float(dout.value[k]), to_float(out.value[k]), sums[i]);
#pragma unroll
      for (int step = 4; step > 0; step /= 2) sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], step);
    }
    QueryStats& to = tensors.stats[stats_tiles_before(shape, work.sequence, work.first_head) + own_tile];
#pragma unroll
    for (int h = 0; h < 2; ++h) {  // row lane / 4 + 8 h is number 2 h + lane / 16 of lanes 8 (lane / 4 % 4)
      const int from = lane / 4 % 4 * 8;
      const float low = __shfl_sync(0xffffffffu, sums[2 * h], from);
      const float high = __shfl_sync(0xffffffffu, sums[2 * h + 1], from);
      row_dot[h] = lane < 16 ? low : high;
      if (lane % 4 == 0) {
        to.log2_sum[hopper::sums_row() + 8 * h] = row_log2_sum[h];
        to.dot[hopper::sums_row() + 8 * h] = row_dot[h];
      }
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
    hopper::start_scores<T>(dscore, hopper::tile_descriptor(rows.pair.vo), vo);
    hopper::end_product_group();
    if (diagonal) hopper::mask_later_keys<kKeyRows>(score);
    if constexpr (!kKeyRows && kLast) {  // zeros behind the last key are none
      if (!shape.causal) hopper::mask_columns(score, shape.time - tile * kTileSide);
    }
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
    skip(first_tile - work.first_tile);
    wait();
    hopper::begin_products();
    start_scores(score);
    hopper::end_product_group();
    if constexpr (!kKeyRows) make_stats(tensors);
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

    store(rows.pair.qk, sums_qk, shape.scale, tensors,
          kKeyRows ? shape.key_column(work.kv_head) : shape.query_column(work.first_head));
    if constexpr (kKeyRows) store(rows.pair.vo, sums_v, 1.0f, tensors, shape.value_column(work.kv_head));
  }

  // The rows of dqkv from this column on and, where they are asked for, the sums of what was written.
  __device__ __forceinline__ void store(std::byte* tile_bytes, const hopper::Sums& sums, float scale,
                                        const Tensors& tensors, int column) const {
    const int begin = own_tile * kTileSide, count = min(kTileSide, shape.time - begin);
    const bool sum = tensors.tile_sums != nullptr;
    float columns[8] = {};
    T* out = static_cast<T*>(tensors.dqkv) + (int64_t{work.sequence} * shape.time + begin) * shape.width();
    hopper::store_rows(tile_bytes, sums, scale, out + column, shape.width(), count, [&](const Pack<T>& pack) {
      if (!sum) return;
#pragma unroll
      for (int i = 0; i < 8; ++i) columns[i] += to_float(pack.value[i]);
    });
    if (!sum) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // over the lanes with the same columns
      columns[i] += __shfl_xor_sync(0xffffffffu, columns[i], 8);
      columns[i] += __shfl_xor_sync(0xffffffffu, columns[i], 16);
    }
    float(&of_warp)[kWarpgroup / 32][kTileSide] = shared.column_sums[part];
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
    if (thread % 32 < 8) {
      float* to = of_warp[thread / 32] + thread % 32 * 8;
      store_pack(to, {columns[0], columns[1], columns[2], columns[3]});
      store_pack(to + 4, {columns[4], columns[5], columns[6], columns[7]});
    }
    hopper::sync_warpgroup();  // read before the next comes: store_rows() begins with one as well
    if (thread < kTileSide)
      tensors
          .tile_sums[(int64_t{work.sequence} * shape.tiles() + own_tile) * shape.width() + column + thread] =
          of_warp[0][thread] + of_warp[1][thread] + of_warp[2][thread] + of_warp[3][thread];
  }

  __device__ __forceinline__ void run(const Tensors& tensors) {
    if constexpr (!kKeyRows) load_lse(tensors);
    shared.rows_there[rings.rows.at].wait(rings.rows.parity);
    if (own_tile < shape.tiles()) {
      compute(tensors);
    } else {  // there are none
      skip(work.num_heads * (work.end_tile - work.first_tile));
    }
    hopper::hand_to_copies();
    shared.rows_used[rings.rows.at].arrive();
    rings.rows.advance();
  }
};

template <typename T, bool kKeyRows>
__global__ void __launch_bounds__(kThreads, 1)
    attention_grad(const __grid_constant__ TileMaps maps, const AttentionShape shape, const Tensors tensors) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) std::byte memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    if (hopper::shared_address(memory) % 1024 != 0) __trap();  // swizzled tiles would be read as others
    constexpr int kUsers = kRowTiles * kWarpgroup;             // threads that compute
    for (Barrier& there : shared.rows_there) there.init(1);
    for (Barrier& used : shared.rows_used) used.init(kUsers);
    for (Barrier& there : shared.there) there.init(1);
    for (Barrier& used : shared.used) used.init(kUsers / 32 * kReleasingLanes);
    hopper::publish_barriers();
  }
  __syncthreads();
  Rings rings;
  const int pieces = num_pieces<kKeyRows>(shape);
  if (hopper::warpgroup() == kRowTiles) {
    hopper::give_registers<24>();
    if (threadIdx.x != kRowTiles * kWarpgroup) return;
    hopper::for_each_piece(pieces, [&](int piece) {
      load_piece(shape, Work<kKeyRows>(shape, piece), shared, rings, maps, tensors);
    });
  } else {
    hopper::take_registers<240>();
    hopper::for_each_piece(pieces, [&](int piece) {
      const Work<kKeyRows> work(shape, piece);
      Rows<T, kKeyRows>{shape, work, shared, rings}.run(tensors);
    });
  }
#else
  __trap();  // not chosen for other GPUs
#endif
}

template <typename T, bool kKeyRows>
void launch(const AttentionShape& shape, const TileMaps& maps, const Tensors& tensors, cudaStream_t queue) {
  constexpr int kBytes = sizeof(Shared);
  const auto kernel = attention_grad<T, kKeyRows>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "attention_grad");
  const unsigned blocks = hopper::blocks_for(num_pieces<kKeyRows>(shape));
  kernel<<<blocks, kThreads, kBytes, queue>>>(maps, shape, tensors);
  check_launch("attention_grad");
}

int64_t tiles_of_queries(const AttentionShape& shape) { return stats_tiles_before(shape, shape.batch, 0); }
int64_t tiles_of_rows(const AttentionShape& shape) { return int64_t{shape.batch} * shape.tiles(); }

}  // namespace

bool hopper_attention_grad_supported(const FusedAttention& shape) {
  return shape.is_plain() && is_half(shape.type) && shape.time > 0 && shape.head_dim == kTileSide;
}

size_t hopper_attention_grad_workspace(const FusedAttention& fused, bool with_bias) {
  const AttentionShape shape(fused);
  const size_t sums = with_bias ? static_cast<size_t>(tiles_of_rows(shape) * shape.width()) : 0;
  return static_cast<size_t>(tiles_of_queries(shape)) * sizeof(QueryStats) + sums * sizeof(float);
}

void run_hopper_attention_grad(const FusedAttention& fused, const FusedAttentionGradTensors& in,
                               const BiasSums& bias, std::span<std::byte> workspace, cudaStream_t queue) {
  const AttentionShape shape(fused);
  const bool with_bias = bias.sums != nullptr;
  TANDEM_CHECK(workspace.size() >= hopper_attention_grad_workspace(fused, with_bias));
  auto* stats = reinterpret_cast<QueryStats*>(workspace.data());
  auto* tile_sums = reinterpret_cast<float*>(stats + tiles_of_queries(shape));
  const Tensors tensors{static_cast<const float*>(in.lse), stats, with_bias ? tile_sums : nullptr, in.dqkv};
  const int out_width = shape.heads * kTileSide;
  const TileMaps maps{hopper::tile_map(in.qkv, fused.type, shape, shape.width()),
                      hopper::tile_map(in.out, fused.type, shape, out_width),
                      hopper::tile_map(in.dout, fused.type, shape, out_width)};
  const auto run = [&]<typename T>(T*) {
    launch<T, false>(shape, maps, tensors, queue);
    launch<T, true>(shape, maps, tensors, queue);  // reads the other's numbers of queries
  };
  if (fused.type == DType::BF16) {
    run(static_cast<__nv_bfloat16*>(nullptr));
  } else {
    run(static_cast<__half*>(nullptr));
  }
  if (with_bias)
    add_chunk_sums(tile_sums, tiles_of_rows(shape), shape.width(), bias.sums, bias.accumulate, queue);
}

}  // namespace tandem::cuda
