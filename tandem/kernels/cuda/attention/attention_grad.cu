// The gradient of attention, with p = exp(score - lse) made anew from the queries and keys, and d = dout .
// out:
//   dscore = p (dout . v - d) slope,   dq = sum of dscore k,   dk = sum of dscore q,   dv = sum of p dout.
// A tile of queries, going over keys, and a tile of keys, going over the queries of its group of heads, do
// the same with the parts exchanged: rows (q, dout) against columns (k, v), or rows (k, v) against columns
// (q, dout). Each result has one block that sums it in a fixed order.
#include "tandem/kernels/cuda/attention/attention_tile.cuh"
#include "tandem/kernels/cuda/device/cuda_check.h"

namespace tandem::cuda {
namespace {

struct GradTensors {
  const void* dout;
  const void* qkv;
  const void* out;
  const float* lse;
  float* dots;  // d, laid out as lse
  void* dqkv;
};

// A warp makes the dot product of one token and head.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    row_dots(const AttentionCall call, const GradTensors tensors) {
  constexpr int kWarps = kTileThreads / 32;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (row >= int64_t{call.batch} * call.tokens * call.heads) return;
  const T* dout = static_cast<const T*>(tensors.dout) + row * call.head_dim;
  const T* out = static_cast<const T*>(tensors.out) + row * call.head_dim;
  float sum = 0;
  for (int i = lane; i < call.head_dim; i += 32) sum = fmaf(to_float(dout[i]), to_float(out[i]), sum);
  sum = warp_sum(sum);
  if (lane != 0) return;
  const int head = static_cast<int>(row % call.heads);
  const int64_t token = row / call.heads;  // of all sequences
  const int64_t first = call.first_query(static_cast<int>(token / call.tokens), head);
  tensors.dots[first + token % call.tokens] = sum;
}

// From the products of a tile of rows and one of columns to probabilities and the gradients of scores, short
// of the scale.
template <int kDim, bool kKeyRows>
__device__ __forceinline__ void score_gradients(const AttentionCall& call, int batch, int row_begin,
                                                int column_begin, const float* lse, const float* dots,
                                                Scores<kDim>& p, Scores<kDim>& dscore) {
  constexpr int kMicro = Tile<kDim>::kMicro;
#pragma unroll
  for (int i = 0; i < kMicro; ++i) {
#pragma unroll
    for (int j = 0; j < kMicro; ++j) {
      const int row = tile_y() * kMicro + i, column = tile_x() + 16 * j;
      const int query = kKeyRows ? column_begin + column : row_begin + row;
      const int key = kKeyRows ? row_begin + row : column_begin + column;
      const int at = kKeyRows ? column : row;  // of the query, in the tile
      const bool seen = call.sees(batch, query, key);
      if (call.cap == 0) {
        p[i][j] = seen ? __expf(fmaf(p[i][j], call.scale, -lse[at])) : 0.0f;
        dscore[i][j] = p[i][j] * (dscore[i][j] - dots[at]);
      } else {
        const float score = call.score(p[i][j]), bent = score / call.cap;
        p[i][j] = seen ? __expf(score - lse[at]) : 0.0f;
        dscore[i][j] = p[i][j] * (dscore[i][j] - dots[at]) * (1 - bent * bent);
      }
    }
  }
}

template <int kDim, bool kKeyRows>
__global__ void __launch_bounds__(kTileThreads, kDim == 64 ? 2 : 1)
    attention_grad(const AttentionCall call, const GradTensors tensors) {
  using Geometry = Tile<kDim>;
  constexpr int kMicro = Geometry::kMicro;
  extern __shared__ __align__(16) float memory[];
  float* row_qk = memory;                          // q of dq's tile, k of dk's
  float* row_ov = row_qk + Geometry::kVectors;     // dout, v
  float* column_qk = row_ov + Geometry::kVectors;  // k, q
  float* column_ov = column_qk + Geometry::kVectors;
  float* weights = column_ov + Geometry::kVectors;
  float* lse = weights + Geometry::kScores;  // of the tile's queries
  float* dots = lse + Geometry::kRows;

  // The tiles with the most to do come first: the last queries, the first keys.
  const int heads = kKeyRows ? call.kv_heads : call.heads;
  const auto num_heads = static_cast<unsigned>(call.batch * heads);
  const int tiles = static_cast<int>(gridDim.x / num_heads);
  const int nth = static_cast<int>(blockIdx.x / num_heads);
  const int begin = (kKeyRows ? nth : tiles - 1 - nth) * Geometry::kRows;
  const int batch = static_cast<int>(blockIdx.x % num_heads) / heads;
  const int row_head = static_cast<int>(blockIdx.x % num_heads) % heads;
  const int group = call.heads / call.kv_heads;
  const int kv_head = kKeyRows ? row_head : row_head / group;

  const int key_slot = call.heads + kv_head, value_slot = key_slot + call.kv_heads;
  const auto load_keys = [&](float* keys, float* values, int from) {
    load_rows<kDim>(keys, call, tensors.qkv, call.slot(batch, key_slot), from);
    load_rows<kDim>(values, call, tensors.qkv, call.slot(batch, value_slot), from);
  };
  const auto load_queries = [&](float* queries, float* grads, int head, int from) {
    load_rows<kDim>(queries, call, tensors.qkv, call.slot(batch, head), from);
    load_rows<kDim>(grads, call, tensors.dout, call.output(batch, head), from);
    const int64_t first = call.first_query(batch, head);
    for (int i = static_cast<int>(threadIdx.x); i < Geometry::kRows; i += kTileThreads) {
      const bool exists = from + i < call.tokens;
      lse[i] = exists ? tensors.lse[first + from + i] : 0;
      dots[i] = exists ? tensors.dots[first + from + i] : 0;
    }
  };
  if constexpr (kKeyRows) {
    load_keys(row_qk, row_ov, begin);
  } else {
    load_queries(row_qk, row_ov, row_head, begin);
  }

  Mixed<kDim> sums_qk, sums_v;  // dq, or dk and dv
  clear<kDim>(sums_qk);
  clear<kDim>(sums_v);
  const int first_head = kKeyRows ? kv_head * group : row_head;
  const int last_head = kKeyRows ? first_head + group : first_head + 1;
  const int seen_first = call.first_key(begin) / Geometry::kRows * Geometry::kRows;
  const int column_first = !kKeyRows ? seen_first : call.causal ? begin : 0;
  const int column_end = kKeyRows      ? call.query_end(begin + Geometry::kRows)
                         : call.causal ? min(call.tokens, begin + Geometry::kRows)
                                       : call.tokens;
  for (int head = first_head; head < last_head; ++head) {
    for (int column_begin = column_first; column_begin < column_end; column_begin += Geometry::kRows) {
      __syncthreads();  // the columns before have been read
      if constexpr (kKeyRows) {
        load_queries(column_qk, column_ov, head, column_begin);
      } else {
        load_keys(column_qk, column_ov, column_begin);
      }
      __syncthreads();
      Scores<kDim> p, dscore;
      dot_rows<kDim>(row_qk, column_qk, p);
      dot_rows<kDim>(row_ov, column_ov, dscore);
      score_gradients<kDim, kKeyRows>(call, batch, begin, column_begin, lse, dots, p, dscore);
      if constexpr (kKeyRows) {
        store_scores<kDim>(weights, p);
        __syncwarp();
        mix_rows<kDim>(weights, column_ov, sums_v);
        __syncwarp();
      }
      store_scores<kDim>(weights, dscore);
      __syncwarp();
      mix_rows<kDim>(weights, column_qk, sums_qk);
    }
  }

  float scale[kMicro], one[kMicro];
#pragma unroll
  for (int i = 0; i < kMicro; ++i) {
    scale[i] = call.scale;
    one[i] = 1;
  }
  store_rows<kDim>(call, tensors.dqkv, call.slot(batch, kKeyRows ? key_slot : row_head), begin, sums_qk,
                   scale);
  if constexpr (kKeyRows)
    store_rows<kDim>(call, tensors.dqkv, call.slot(batch, value_slot), begin, sums_v, one);
}

template <int kDim, bool kKeyRows>
void launch_grad(const AttentionCall& call, const GradTensors& tensors, cudaStream_t queue) {
  using Geometry = Tile<kDim>;
  constexpr int kFloats = 4 * Geometry::kVectors + Geometry::kScores + 2 * Geometry::kRows;
  constexpr int kBytes = kFloats * static_cast<int>(sizeof(float));
  const auto kernel = attention_grad<kDim, kKeyRows>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "attention_grad");
  const int tiles = (call.tokens + Geometry::kRows - 1) / Geometry::kRows;
  const auto blocks = static_cast<unsigned>(tiles * call.batch * (kKeyRows ? call.kv_heads : call.heads));
  kernel<<<blocks, kTileThreads, kBytes, queue>>>(call, tensors);
  check_launch("attention_grad");
}

// The dots.
size_t workspace(const CallSignature& call, int) {
  return static_cast<size_t>(call.in[3].shape.elems()) * sizeof(float);
}

void run_attention_grad(const KernelArgs& args, Stream& stream) {
  const TensorArg& qkv = args.in[1];
  if (qkv.elems() == 0) return;
  const AttentionCall call =
      attention_call(qkv.type, args.attrs, args.in.size() > 4 ? args.in[4].as<int>() : nullptr);
  const int64_t rows = args.in[3].elems();
  TANDEM_CHECK(args.workspace.size() >= static_cast<size_t>(rows) * sizeof(float));
  const GradTensors tensors{.dout = args.in[0].data,
                            .qkv = qkv.data,
                            .out = args.in[2].data,
                            .lse = args.in[3].as<float>(),
                            .dots = reinterpret_cast<float*>(args.workspace.data()),
                            .dqkv = args.out[0].data};
  for_storage(call.dtype, [&]<typename T>(T*) {
    constexpr int kWarps = kTileThreads / 32;
    const auto blocks = static_cast<unsigned>((rows + kWarps - 1) / kWarps);
    row_dots<T><<<blocks, kTileThreads, 0, queue_of(stream)>>>(call, tensors);
  });
  check_launch("attention_grad");
  for_head_dim(call.head_dim, [&]<int kDim>(std::integral_constant<int, kDim>) {
    launch_grad<kDim, false>(call, tensors, queue_of(stream));
    launch_grad<kDim, true>(call, tensors, queue_of(stream));
  });
}

bool supports(const CallSignature& call) {
  const bool segments = call.attrs->integer_or("segments", 0) != 0;
  if (call.in.size() != (segments ? 5 : 4) || !is_tiled_attention(call.in[1], *call.attrs)) return false;
  const DType storage = call.in[1].dtype;
  return call.in[0].dtype == storage && call.in[2].dtype == storage && call.in[3].dtype == DType::F32 &&
         call.out[0].dtype == storage;
}

}  // namespace

void add_attention_grad_kernel(KernelRegistry& registry) {
  registry.add({"cuda.attention_grad", Op::AttentionGrad, supports, workspace, run_attention_grad});
}

}  // namespace tandem::cuda
