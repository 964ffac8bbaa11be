// Attention for any storage type and head size: a block takes a tile of queries of one head and goes over the
// keys a tile at a time, keeping for each query the largest score so far, the sum of exponentials below it
// and the sum of values so weighted, all fp32. It serves fp32 training, and shapes that the fused library
// lacks.
#include <limits>

#include "tandem/kernels/cuda/attention/attention_tile.cuh"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

template <int kDim>
__global__ void __launch_bounds__(kTileThreads, 2)
    attention(const AttentionCall call, const void* __restrict__ qkv, void* __restrict__ out,
              float* __restrict__ lse) {
  using Geometry = Tile<kDim>;
  extern __shared__ __align__(16) float memory[];
  float* queries = memory;
  float* vectors = queries + Geometry::kVectors;  // keys, then values
  float* weights = vectors + Geometry::kVectors;

  // The last queries see the most keys: their blocks come first.
  const auto num_heads = static_cast<unsigned>(call.batch * call.heads);
  const int tiles = static_cast<int>(gridDim.x / num_heads);
  const int begin = (tiles - 1 - static_cast<int>(blockIdx.x / num_heads)) * Geometry::kRows;
  const int batch = static_cast<int>(blockIdx.x % num_heads) / call.heads;
  const int head = static_cast<int>(blockIdx.x % num_heads) % call.heads;
  const int kv_head = head / (call.heads / call.kv_heads);
  const HeadRows keys = call.slot(batch, call.heads + kv_head);
  const HeadRows values = call.slot(batch, call.heads + call.kv_heads + kv_head);
  load_rows<kDim>(queries, call, qkv, call.slot(batch, head), begin);

  constexpr int kMicro = Geometry::kMicro;
  float largest[kMicro], sum[kMicro];
  Mixed<kDim> mixed;
  clear<kDim>(mixed);
#pragma unroll
  for (int i = 0; i < kMicro; ++i) {
    largest[i] = kUnseen;
    sum[i] = 0;
  }

  const int end = call.causal ? min(call.tokens, begin + Geometry::kRows) : call.tokens;
  const int first = call.first_key(begin) / Geometry::kRows * Geometry::kRows;
  for (int key_begin = first; key_begin < end; key_begin += Geometry::kRows) {
    __syncthreads();  // the values before have been read
    load_rows<kDim>(vectors, call, qkv, keys, key_begin);
    __syncthreads();
    Scores<kDim> scores;
    dot_rows<kDim>(queries, vectors, scores);
#pragma unroll
    for (int i = 0; i < kMicro; ++i) {
      const int query = begin + tile_y() * kMicro + i;
      const float before = largest[i];
      float above = before;
#pragma unroll
      for (int j = 0; j < kMicro; ++j) {
        const int key = key_begin + tile_x() + 16 * j;
        scores[i][j] = call.sees(batch, query, key) ? call.score(scores[i][j]) : kUnseen;
        above = fmaxf(above, scores[i][j]);
      }
      above = row_max(above);
      largest[i] = above;
      if (above == kUnseen) above = 0;  // nothing was seen yet: every weight is 0
      const float shrink = __expf(before - above);
      float part = 0;
#pragma unroll
      for (int j = 0; j < kMicro; ++j) {
        scores[i][j] = __expf(scores[i][j] - above);
        part += scores[i][j];
      }
      sum[i] = sum[i] * shrink + row_sum(part);
#pragma unroll
      for (int c = 0; c < Geometry::kMixed; ++c) mixed[i][c] *= shrink;
    }
    store_scores<kDim>(weights, scores);
    __syncthreads();  // the keys have been read
    load_rows<kDim>(vectors, call, qkv, values, key_begin);
    __syncthreads();
    mix_rows<kDim>(weights, vectors, mixed);
  }

  float inverse[kMicro];
#pragma unroll
  for (int i = 0; i < kMicro; ++i) {
    inverse[i] = 1 / sum[i];
    const int query = begin + tile_y() * kMicro + i;
    if (tile_x() == 0 && query < call.tokens) {
      lse[call.first_query(batch, head) + query] = largest[i] + logf(sum[i]);
    }
  }
  store_rows<kDim>(call, out, call.output(batch, head), begin, mixed, inverse);
}

void run_attention(const KernelArgs& args, Stream& stream) {
  const TensorArg& qkv = args.in[0];
  if (qkv.elems() == 0) return;
  const AttentionCall call =
      attention_call(qkv.type, args.attrs, args.in.size() > 1 ? args.in[1].as<int>() : nullptr);
  for_head_dim(call.head_dim, [&]<int kDim>(std::integral_constant<int, kDim>) {
    using Geometry = Tile<kDim>;
    constexpr int kBytes = (2 * Geometry::kVectors + Geometry::kScores) * static_cast<int>(sizeof(float));
    check(cudaFuncSetAttribute(attention<kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
          "attention");
    const int tiles = (call.tokens + Geometry::kRows - 1) / Geometry::kRows;
    const auto blocks = static_cast<unsigned>(tiles * call.batch * call.heads);
    attention<kDim><<<blocks, kTileThreads, kBytes, queue_of(stream)>>>(call, qkv.data, args.out[0].data,
                                                                        args.out[1].as<float>());
    check_launch("attention");
  });
}

bool supports(const CallSignature& call) {
  return call.out.size() == 2 && is_tiled_attention(call.in[0], *call.attrs) &&
         call.out[0].dtype == call.in[0].dtype && call.out[1].dtype == DType::F32;
}

}  // namespace

void add_attention_kernels(KernelRegistry& registry) {
  registry.add({"cuda.attention", Op::Attention, supports, nullptr, run_attention});
  add_attention_grad_kernel(registry);
  add_rope_kernels(registry);
  add_cached_attention_kernel(registry);
}

}  // namespace tandem::cuda
