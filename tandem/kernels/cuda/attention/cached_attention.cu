// Attention of new tokens over a cache, in two kernels. In the first a block has a row, a key head with some
// of its query heads, and a range of positions: it takes these 256 at a time, makes their scores, then the
// sums of values under the running maximum. The second puts the ranges of a row together, in order.
//
// Where the text stands is read from memory, so that one CUDA graph serves every position: there are blocks
// for all ranges of a full cache, and those that have nothing to see end at once. The new keys and values are
// read where they are, and put into the cache by the blocks of the first range: nobody reads the slots that
// they take, as what lay there is out of every window.
#include <cmath>
#include <limits>

#include "tandem/kernels/cuda/attention/packed_heads.h"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"

namespace tandem::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kPositions = kThreads;  // at a time
constexpr int kMaxRanges = 64;        // of a row
constexpr int kMaxDim = 256;
constexpr float kUnseen = -std::numeric_limits<float>::infinity();

struct CachedCall {
  int rows, heads, kv_heads, slots, head_dim;
  int window;  // 0: none
  float scale, softcap;
  int ranges, range;    // how many of a full cache, and positions of each: a multiple of kPositions
  const int* position;  // of the first row; how many rows are real

  __host__ __device__ int group() const { return heads / kv_heads; }
  __host__ __device__ int stride() const { return (heads + 2 * kv_heads) * head_dim; }
  __host__ __device__ int partial() const { return head_dim + 2; }
  __device__ int own(int row) const { return position[0] + row; }
  __device__ int oldest(int row) const { return window == 0 ? 0 : max(0, own(row) + 1 - window); }
  __device__ int num_ranges(int row) const { return (own(row) + 1 - oldest(row) + range - 1) / range; }
};

// Keys (or values) of one head: those of new rows lie in qkv, the others in the cache.
template <typename T>
struct Vectors {
  const T* cache;
  const T* fresh;
  int first, slots, head_dim, stride;

  __device__ const T* at(int position) const {
    if (position >= first) return fresh + static_cast<int64_t>(position - first) * stride;
    return cache + static_cast<int64_t>(position % slots) * head_dim;
  }
};

// A warp's lanes share a vector: lane l has elements l, l + 32, ...
template <int kPer, typename T>
__device__ __forceinline__ void load_lane(const T* from, int head_dim, float (&to)[kPer]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const int d = lane + 32 * i;
    to[i] = d < head_dim ? to_float(from[d]) : 0;
  }
}

// Scores of positions begin .. end, a warp for every kWarps-th of them, for each query: scores[q][j].
template <int kQueries, int kPer, typename T>
__device__ __forceinline__ void score(const CachedCall& call, const Vectors<T>& keys,
                                      const float (&queries)[kQueries][kPer], int begin, int end,
                                      float (*scores)[kPositions]) {
#pragma unroll 2
  for (int j = static_cast<int>(threadIdx.x / 32); j < end - begin; j += kWarps) {
    float key[kPer];
    load_lane<kPer>(keys.at(begin + j), call.head_dim, key);
#pragma unroll
    for (int q = 0; q < kQueries; ++q) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kPer; ++i) sum = fmaf(queries[q][i], key[i], sum);
      sum = warp_sum(sum) * call.scale;
      if (call.softcap != 0) sum = call.softcap * tanhf(sum / call.softcap);
      if (threadIdx.x % 32 == 0) scores[q][j] = sum;
    }
  }
}

// What all threads know of the ranges so far.
template <int kQueries>
struct Running {
  float largest[kQueries], sum[kQueries], shrink[kQueries];
};

// Scores become exp(score - maximum so far); warp w has query w, w + kWarps, ...
template <int kQueries>
__device__ __forceinline__ void exponentiate(int count, float (*scores)[kPositions],
                                             Running<kQueries>& running) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int q = static_cast<int>(threadIdx.x / 32); q < kQueries; q += kWarps) {
    float top = kUnseen;
    for (int j = lane; j < count; j += 32) top = fmaxf(top, scores[q][j]);
    top = fmaxf(running.largest[q], warp_max(top));
    float sum = 0;
    for (int j = lane; j < count; j += 32) {
      const float p = __expf(scores[q][j] - top);
      scores[q][j] = p;
      sum += p;
    }
    sum = warp_sum(sum);
    __syncwarp();
    if (lane == 0) {
      const float shrink = __expf(running.largest[q] - top);
      running.shrink[q] = shrink;
      running.sum[q] = running.sum[q] * shrink + sum;
      running.largest[q] = top;
    }
  }
}

template <int kQueries, int kPer, typename T>
__device__ __forceinline__ void mix(const CachedCall& call, const Vectors<T>& values, int begin, int end,
                                    float (*scores)[kPositions], const Running<kQueries>& running,
                                    float (&mixed)[kQueries][kPer]) {
#pragma unroll
  for (int q = 0; q < kQueries; ++q) {
#pragma unroll
    for (int i = 0; i < kPer; ++i) mixed[q][i] *= running.shrink[q];
  }
#pragma unroll 2
  for (int j = static_cast<int>(threadIdx.x / 32); j < end - begin; j += kWarps) {
    float value[kPer];
    load_lane<kPer>(values.at(begin + j), call.head_dim, value);
#pragma unroll
    for (int q = 0; q < kQueries; ++q) {
#pragma unroll
      for (int i = 0; i < kPer; ++i) mixed[q][i] = fmaf(scores[q][j], value[i], mixed[q][i]);
    }
  }
}

// Grid: ranges, (key head, tile of its queries), (batch, row).
template <int kQueries, int kPer, typename T>
__global__ void __launch_bounds__(kThreads)
    attend(const CachedCall call, const T* __restrict__ qkv, T* keys_cache, T* values_cache,
           float* __restrict__ partials) {
  __shared__ float scores[kQueries][kPositions];
  __shared__ Running<kQueries> running;
  __shared__ float parts[kWarps][kMaxDim];
  const int tiles = (call.group() + kQueries - 1) / kQueries;
  const int kv_head = static_cast<int>(blockIdx.y) / tiles;
  const int tile = static_cast<int>(blockIdx.y) % tiles * kQueries;
  const int batch = static_cast<int>(blockIdx.z) / call.rows, row = static_cast<int>(blockIdx.z) % call.rows;
  if (row >= call.position[1] || static_cast<int>(blockIdx.x) >= call.num_ranges(row)) return;

  const int64_t head_cache =
      (static_cast<int64_t>(batch) * call.kv_heads + kv_head) * call.slots * call.head_dim;
  const T* tokens = qkv + static_cast<int64_t>(batch) * call.rows * call.stride();
  const T* fresh_keys = tokens + (call.heads + kv_head) * call.head_dim;
  const T* fresh_values = fresh_keys + call.kv_heads * call.head_dim;
  const int first = call.position[0];
  const Vectors<T> keys{keys_cache + head_cache, fresh_keys, first, call.slots, call.head_dim, call.stride()};
  const Vectors<T> values{
      values_cache + head_cache, fresh_values, first, call.slots, call.head_dim, call.stride()};
  if (blockIdx.x == 0 && tile == 0) {
    const int64_t to = head_cache + static_cast<int64_t>(call.own(row) % call.slots) * call.head_dim;
    for (int d = static_cast<int>(threadIdx.x); d < call.head_dim; d += kThreads) {
      keys_cache[to + d] = fresh_keys[static_cast<int64_t>(row) * call.stride() + d];
      values_cache[to + d] = fresh_values[static_cast<int64_t>(row) * call.stride() + d];
    }
  }

  // Queries beyond the group repeat its last one; nobody looks at what they give.
  float queries[kQueries][kPer], mixed[kQueries][kPer] = {};
#pragma unroll
  for (int q = 0; q < kQueries; ++q) {
    const int head = kv_head * call.group() + min(tile + q, call.group() - 1);
    load_lane<kPer>(tokens + static_cast<int64_t>(row) * call.stride() + head * call.head_dim, call.head_dim,
                    queries[q]);
  }
  if (threadIdx.x < kQueries) {
    running.largest[threadIdx.x] = kUnseen;
    running.sum[threadIdx.x] = 0;
  }
  const int range_begin = call.oldest(row) + static_cast<int>(blockIdx.x) * call.range;
  const int range_end = min(range_begin + call.range, call.own(row) + 1);
  for (int begin = range_begin; begin < range_end; begin += kPositions) {
    const int end = min(begin + kPositions, range_end);
    __syncthreads();  // the scores before have been read
    score<kQueries, kPer>(call, keys, queries, begin, end, scores);
    __syncthreads();
    exponentiate<kQueries>(end - begin, scores, running);
    __syncthreads();
    mix<kQueries, kPer>(call, values, begin, end, scores, running, mixed);
  }

  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int q = 0; q < kQueries; ++q) {
    if (tile + q >= call.group()) break;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPer; ++i) parts[warp][lane + 32 * i] = mixed[q][i];
    __syncthreads();
    const int head = kv_head * call.group() + tile + q;
    float* to =
        partials +
        ((static_cast<int64_t>(blockIdx.z) * call.heads + head) * call.ranges + blockIdx.x) * call.partial();
    for (int d = static_cast<int>(threadIdx.x); d < call.head_dim; d += kThreads) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += parts[w][d];
      to[d] = sum;
    }
    if (threadIdx.x == 0) {
      to[call.head_dim] = running.largest[q];
      to[call.head_dim + 1] = running.sum[q];
    }
  }
}

// Grid: query heads, (batch, row).
template <typename T>
__global__ void __launch_bounds__(kMaxDim)
    join(const CachedCall call, const float* __restrict__ partials, T* __restrict__ out) {
  const int head = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y) % call.rows;
  const int d = static_cast<int>(threadIdx.x);
  if (d >= call.head_dim) return;
  T* to = out + (static_cast<int64_t>(blockIdx.y) * call.heads + head) * call.head_dim + d;
  if (row >= call.position[1]) {
    *to = from_float<T>(0);
    return;
  }
  const float* from =
      partials + (static_cast<int64_t>(blockIdx.y) * call.heads + head) * call.ranges * call.partial();
  const int ranges = call.num_ranges(row);
  float largest = kUnseen, sum = 0, mixed = 0;
  for (int r = 0; r < ranges; ++r) largest = fmaxf(largest, from[r * call.partial() + call.head_dim]);
  for (int r = 0; r < ranges; ++r) {
    const float* part = from + r * call.partial();
    const float weight = __expf(part[call.head_dim] - largest);
    sum = fmaf(weight, part[call.head_dim + 1], sum);
    mixed = fmaf(weight, part[d], mixed);
  }
  *to = from_float<T>(mixed / sum);
}

CachedCall cached_call(const TensorType& qkv, const TensorType& keys, const Attrs& attrs) {
  CachedCall call = {};
  call.rows = static_cast<int>(qkv.shape[1]);
  call.heads = static_cast<int>(attrs.integer("heads"));
  call.kv_heads = static_cast<int>(attrs.integer("kv_heads"));
  call.slots = static_cast<int>(keys.shape[2]);
  call.head_dim = static_cast<int>(keys.shape[3]);
  call.window = static_cast<int>(attrs.integer_or("window", 0));
  call.scale = static_cast<float>(attrs.real_or("scale", 1 / std::sqrt(static_cast<double>(call.head_dim))));
  call.softcap = static_cast<float>(attrs.real_or("softcap", 0));
  const int blocks = (call.slots + kPositions - 1) / kPositions;
  const int blocks_a_range = (blocks + kMaxRanges - 1) / kMaxRanges;
  call.range = blocks_a_range * kPositions;
  call.ranges = (blocks + blocks_a_range - 1) / blocks_a_range;
  return call;
}

template <int kQueries, int kPer, typename T>
void launch(const CachedCall& call, int64_t batch, const KernelArgs& args, cudaStream_t queue) {
  const int tiles = (call.group() + kQueries - 1) / kQueries;
  const auto rows = static_cast<unsigned>(batch * call.rows);
  float* partials = reinterpret_cast<float*>(args.workspace.data());
  attend<kQueries, kPer, T>
      <<<dim3(static_cast<unsigned>(call.ranges), static_cast<unsigned>(call.kv_heads * tiles), rows),
         kThreads, 0, queue>>>(call, args.in[0].as<T>(), args.out[1].as<T>(), args.out[2].as<T>(), partials);
  check_launch("cached_attention");
  join<T><<<dim3(static_cast<unsigned>(call.heads), rows), kMaxDim, 0, queue>>>(call, partials,
                                                                                args.out[0].as<T>());
  check_launch("cached_attention");
}

template <int kPer, typename T>
void launch_for_group(const CachedCall& call, int64_t batch, const KernelArgs& args, cudaStream_t queue) {
  if (call.group() == 1) return launch<1, kPer, T>(call, batch, args, queue);
  if (call.group() <= 4) return launch<4, kPer, T>(call, batch, args, queue);
  launch<8, kPer, T>(call, batch, args, queue);
}

void run(const KernelArgs& args, Stream& stream) {
  CachedCall call = cached_call(args.in[0].type, args.in[1].type, args.attrs);
  call.position = args.in[3].as<int>();
  const int64_t batch = args.in[0].type.shape[0];
  for_storage(args.in[0].type.dtype, [&]<typename T>(T*) {
    if (call.head_dim <= 64) return launch_for_group<2, T>(call, batch, args, queue_of(stream));
    if (call.head_dim <= 128) return launch_for_group<4, T>(call, batch, args, queue_of(stream));
    launch_for_group<8, T>(call, batch, args, queue_of(stream));
  });
}

size_t workspace(const CallSignature& signature, int) {
  const CachedCall call = cached_call(signature.in[0], signature.in[1], *signature.attrs);
  return static_cast<size_t>(signature.in[0].shape[0] * call.rows * call.heads * call.ranges) *
         static_cast<size_t>(call.partial()) * sizeof(float);
}

bool supports(const CallSignature& call) {
  return is_storage(call.in[0].dtype) && are_packed_heads(call.in[0], *call.attrs) &&
         call.in[1].shape[3] <= kMaxDim && call.in[0].shape.rows() <= 65535 && call.in[0].shape.rows() > 0;
}

}  // namespace

void add_cached_attention_kernel(KernelRegistry& registry) {
  registry.add({"cuda.cached_attention", Op::CachedAttention, supports, workspace, run});
}

}  // namespace tandem::cuda
