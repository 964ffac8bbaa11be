// RMS norms of the queries and keys in packed qkv, and their gradients. Of each head: a head belongs to a
// team of a few lanes, a pack a lane, and stays in their registers. Of all heads of a token together: a token
// belongs to a block. Gradients of the gammas are summed by a fixed number of blocks, whose sums are added up
// in order, so that the result does not depend on the GPU.
#include <bit>

#include "tandem/kernels/cuda/attention/packed_heads.h"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/norm/norm.cuh"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGradBlocks = 264;
constexpr int kHeadsAtOnce = 4;
constexpr int kGradHeadsAtOnce = 2;
constexpr int kMaxTeamWidth = 256;           // of a head
constexpr int64_t kMaxColumns = 50 * 1024;   // whose sums a block keeps
constexpr int kTeamSums = 2 * kThreads * 8;  // floats: two kinds of up to 8 columns a thread

template <typename T>
struct QkCall {
  const T* dy;  // of the gradient
  const T* qkv;
  const T* gamma[2];  // of queries, of keys
  T* out;             // y, or dqkv, which may be dy
  float* rstd;        // read by the gradient
  float* partials;    // of the gradient: [blocks][queries' columns][keys' columns]
  int64_t tokens;
  int heads, kv_heads, head_dim;
  float eps;
  float plus;  // added to gamma

  __device__ int slots() const { return heads + 2 * kv_heads; }
  __device__ int normed() const { return heads + kv_heads; }
};

__device__ __forceinline__ float team_sum(float x, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// The elements of one head that a lane has: kItems groups of kSize, `lanes` groups apart.
template <typename T, int kSize, int kItems>
struct LaneElements {
  float value[kItems][kSize];

  __device__ static int column(int item, int lane, int lanes) { return (item * lanes + lane) * kSize; }

  __device__ __forceinline__ void load(const T* head, int lane, int lanes, int width) {
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int at = column(item, lane, lanes);
      Group<T, kSize> group = {};
      if (at < width) group = load_group<kSize>(head + at);
#pragma unroll
      for (int i = 0; i < kSize; ++i) value[item][i] = to_float(group.value[i]);
    }
  }
  __device__ __forceinline__ void store(T* head, int lane, int lanes, int width) const {
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int at = column(item, lane, lanes);
      Group<T, kSize> group;
#pragma unroll
      for (int i = 0; i < kSize; ++i) group.value[i] = from_float<T>(value[item][i]);
      if (at < width) store_group(head + at, group);
    }
  }
};

// kHeadsAtOnce heads a team, so that many reads are under way. All lanes of a warp come here.
template <typename T, int kSize, int kItems>
__global__ void __launch_bounds__(kThreads) norm_heads(const QkCall<T> call, int lanes) {
  const int lane = static_cast<int>(threadIdx.x) % lanes, teams = kThreads / lanes;
  const int64_t first = int64_t{blockIdx.x} * teams * kHeadsAtOnce + static_cast<int>(threadIdx.x) / lanes;
  const int64_t groups = call.tokens * call.slots();
  const auto width = [&](int64_t group) { return group < groups ? call.head_dim : 0; };
  LaneElements<T, kSize, kItems> x[kHeadsAtOnce], gamma[2];
#pragma unroll
  for (int u = 0; u < kHeadsAtOnce; ++u) {
    const int64_t group = first + u * teams;
    x[u].load(call.qkv + group * call.head_dim, lane, lanes, width(group));
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) gamma[k].load(call.gamma[k], lane, lanes, call.head_dim);
#pragma unroll
  for (int u = 0; u < kHeadsAtOnce; ++u) {
    const int64_t group = first + u * teams, token = group / call.slots();
    const int slot = static_cast<int>(group % call.slots());
    float squares = 0;
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) squares = fmaf(x[u].value[item][i], x[u].value[item][i], squares);
    }
    squares = team_sum(squares, lanes);
    if (slot < call.normed()) {
      const float rstd = 1 / sqrtf(squares / static_cast<float>(call.head_dim) + call.eps);
#pragma unroll
      for (int item = 0; item < kItems; ++item) {
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
          const float gain = (slot < call.heads ? gamma[0] : gamma[1]).value[item][i] + call.plus;
          x[u].value[item][i] = x[u].value[item][i] * rstd * gain;
        }
      }
      if (group < groups && lane == 0) call.rstd[token * call.normed() + slot] = rstd;
    }
    x[u].store(call.out + group * call.head_dim, lane, lanes, width(group));
  }
}

// The sums of a block's teams, team by team, into its partial sums.
template <typename T, int kSize, int kItems>
__device__ __forceinline__ void store_sums(const QkCall<T>& call, const float (&sums)[2][kItems][kSize],
                                           int lanes) {
  __shared__ float shared[kTeamSums];
  const int teams = kThreads / lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  const int team = static_cast<int>(threadIdx.x) / lanes, columns = 2 * call.head_dim;
#pragma unroll
  for (int kind = 0; kind < 2; ++kind) {
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int at = LaneElements<T, kSize, kItems>::column(item, lane, lanes);
#pragma unroll
      for (int i = 0; i < kSize; ++i) {
        if (at < call.head_dim) shared[team * columns + kind * call.head_dim + at + i] = sums[kind][item][i];
      }
    }
  }
  __syncthreads();
  for (int column = static_cast<int>(threadIdx.x); column < columns; column += kThreads) {
    float sum = 0;
    for (int k = 0; k < teams; ++k) sum += shared[k * columns + column];
    call.partials[int64_t{blockIdx.x} * columns + column] = sum;
  }
}

template <typename T, int kSize, int kItems>
__global__ void __launch_bounds__(kThreads) norm_heads_grad(const QkCall<T> call, int lanes) {
  const int lane = static_cast<int>(threadIdx.x) % lanes, teams = kThreads / lanes;
  const float inv_width = 1 / static_cast<float>(call.head_dim);
  const int64_t groups = call.tokens * call.slots(), step = int64_t{gridDim.x} * teams;
  LaneElements<T, kSize, kItems> gamma[2];
#pragma unroll
  for (int k = 0; k < 2; ++k) gamma[k].load(call.gamma[k], lane, lanes, call.head_dim);
  float sums[2][kItems][kSize] = {};
  // The warps of a block go round equally often: all lanes take part in every sum.
  for (int64_t begin = int64_t{blockIdx.x} * teams; begin < groups; begin += kGradHeadsAtOnce * step) {
    LaneElements<T, kSize, kItems> dy[kGradHeadsAtOnce], x[kGradHeadsAtOnce];
    float rstd[kGradHeadsAtOnce];
#pragma unroll
    for (int u = 0; u < kGradHeadsAtOnce; ++u) {
      const int64_t group = begin + u * step + static_cast<int>(threadIdx.x) / lanes;
      const int slot = static_cast<int>(group % call.slots());
      const int width = group < groups ? call.head_dim : 0;
      const bool normed = group < groups && slot < call.normed();
      dy[u].load(call.dy + group * call.head_dim, lane, lanes, width);
      x[u].load(call.qkv + group * call.head_dim, lane, lanes, normed ? width : 0);
      rstd[u] = normed ? call.rstd[group / call.slots() * call.normed() + slot] : 0;
    }
#pragma unroll
    for (int u = 0; u < kGradHeadsAtOnce; ++u) {
      const int64_t group = begin + u * step + static_cast<int>(threadIdx.x) / lanes;
      const int slot = static_cast<int>(group % call.slots());
      const bool normed = slot < call.normed(), key = slot >= call.heads;
      float dot = 0;
#pragma unroll
      for (int item = 0; item < kItems; ++item) {
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
          x[u].value[item][i] *= rstd[u];
          const float share = dy[u].value[item][i] * x[u].value[item][i];
          sums[0][item][i] += key ? 0.0f : share;
          sums[1][item][i] += key ? share : 0.0f;
          dot = fmaf(share, (key ? gamma[1] : gamma[0]).value[item][i] + call.plus, dot);
        }
      }
      const float mean = team_sum(dot, lanes) * inv_width;
#pragma unroll
      for (int item = 0; item < kItems; ++item) {
#pragma unroll
        for (int i = 0; i < kSize; ++i) {
          const float g = dy[u].value[item][i] * ((key ? gamma[1] : gamma[0]).value[item][i] + call.plus);
          if (normed) dy[u].value[item][i] = rstd[u] * fmaf(-x[u].value[item][i], mean, g);
        }
      }
      dy[u].store(call.out + group * call.head_dim, lane, lanes, group < groups ? call.head_dim : 0);
    }
  }
  store_sums<T, kSize, kItems>(call, sums, lanes);
}

// All heads of a kind together: columns [begin, begin + width) of a token's row.
struct Kind {
  int index, begin, width;
};
__device__ __forceinline__ Kind kind_of(int index, int heads, int kv_heads, int head_dim) {
  return {index, index == 0 ? 0 : heads * head_dim, (index == 0 ? heads : kv_heads) * head_dim};
}

template <typename T>
__global__ void __launch_bounds__(kThreads) norm_tokens(const QkCall<T> call) {
  __shared__ float scratch[2][1][kMaxWarps];
  const int first = static_cast<int>(threadIdx.x);
  const int64_t token = blockIdx.x, row = token * call.slots() * call.head_dim;
  for (int k = 0; k < 2; ++k) {
    const Kind kind = kind_of(k, call.heads, call.kv_heads, call.head_dim);
    const T* x = call.qkv + row + kind.begin;
    float squares[1] = {0};
    for (int i = first; i < kind.width; i += kThreads)
      squares[0] = fmaf(to_float(x[i]), to_float(x[i]), squares[0]);
    row_sums(squares, scratch[k]);
    const float rstd = 1 / sqrtf(squares[0] / static_cast<float>(kind.width) + call.eps);
    for (int i = first; i < kind.width; i += kThreads)
      call.out[row + kind.begin + i] =
          from_float<T>(to_float(x[i]) * rstd * (to_float(call.gamma[k][i]) + call.plus));
    if (first == 0) call.rstd[2 * token + k] = rstd;
  }
  for (int i = call.normed() * call.head_dim + first; i < call.slots() * call.head_dim; i += kThreads)
    call.out[row + i] = call.qkv[row + i];
}

// A thread has the same columns in all tokens, and keeps their sums in shared memory.
template <typename T>
__global__ void __launch_bounds__(kThreads) norm_tokens_grad(const QkCall<T> call) {
  extern __shared__ float sums[];
  __shared__ float scratch[2][1][kMaxWarps];
  const int first = static_cast<int>(threadIdx.x), columns = call.normed() * call.head_dim;
  for (int k = 0; k < 2; ++k) {
    const Kind kind = kind_of(k, call.heads, call.kv_heads, call.head_dim);
    for (int i = first; i < kind.width; i += kThreads) sums[kind.begin + i] = 0;
  }
  for (int64_t token = blockIdx.x; token < call.tokens; token += gridDim.x) {
    const int64_t row = token * call.slots() * call.head_dim;
    for (int k = 0; k < 2; ++k) {
      const Kind kind = kind_of(k, call.heads, call.kv_heads, call.head_dim);
      const float rstd = call.rstd[2 * token + k];
      const int64_t begin = row + kind.begin;
      const auto gain = [&](int i) { return to_float(call.gamma[k][i]) + call.plus; };
      const auto x_hat = [&](int i) { return to_float(call.qkv[begin + i]) * rstd; };
      float dot[1] = {0};
      for (int i = first; i < kind.width; i += kThreads) {
        const float share = to_float(call.dy[begin + i]) * x_hat(i);
        sums[kind.begin + i] += share;
        dot[0] = fmaf(share, gain(i), dot[0]);
      }
      row_sums(dot, scratch[k]);
      const float mean = dot[0] / static_cast<float>(kind.width);
      for (int i = first; i < kind.width; i += kThreads) {
        const float g = to_float(call.dy[begin + i]) * gain(i);
        call.out[begin + i] = from_float<T>(rstd * fmaf(-x_hat(i), mean, g));
      }
    }
    for (int i = columns + first; i < call.slots() * call.head_dim; i += kThreads)
      call.out[row + i] = call.dy[row + i];
  }
  // Queries' partial sums of all blocks come first, then keys'.
  for (int k = 0; k < 2; ++k) {
    const Kind kind = kind_of(k, call.heads, call.kv_heads, call.head_dim);
    float* partials = call.partials + int64_t{gridDim.x} * kind.begin + int64_t{blockIdx.x} * kind.width;
    for (int i = first; i < kind.width; i += kThreads) partials[i] = sums[kind.begin + i];
  }
}

template <typename T>
QkCall<T> call_of(const KernelArgs& args, size_t qkv) {
  const PackedHeads packed = packed_heads(args.in[qkv].type, args.attrs);
  QkCall<T> call = {};
  call.qkv = args.in[qkv].as<T>();
  for (size_t k = 0; k < 2; ++k) call.gamma[k] = args.in[qkv + 1 + k].as<T>();
  call.out = args.out[0].as<T>();
  call.tokens = packed.batch * packed.tokens;
  call.heads = static_cast<int>(packed.heads);
  call.kv_heads = static_cast<int>(packed.kv_heads);
  call.head_dim = static_cast<int>(packed.head_dim);
  call.eps = static_cast<float>(args.attrs.real("eps"));
  call.plus = args.attrs.integer_or("plus_one", 0) != 0 ? 1.0f : 0.0f;
  return call;
}

bool is_of_all(const Attrs& attrs) { return attrs.integer_or("all", 0) != 0; }

// Calls fn<kSize, kItems>(lanes) with the widest groups that the head and the addresses allow.
template <typename T, typename Fn>
void for_team(const QkCall<T>& call, Fn&& fn) {
  constexpr int kPack = Pack<T>::kSize;
  const bool packs = call.head_dim % kPack == 0 && is_aligned(call.dy, 16) && is_aligned(call.qkv, 16) &&
                     is_aligned(call.out, 16) && is_aligned(call.gamma[0], 16) &&
                     is_aligned(call.gamma[1], 16);
  if (!packs) return fn.template operator()<1, kMaxTeamWidth / 32>(32);
  const int lanes =
      std::min(32, static_cast<int>(std::bit_ceil(static_cast<unsigned>(call.head_dim / kPack))));
  fn.template operator()<kPack, kMaxTeamWidth / 32 / kPack>(lanes);
}

void run_qk_norm(const KernelArgs& args, Stream& stream) {
  if (args.in[0].elems() == 0) return;
  const cudaStream_t queue = queue_of(stream);
  for_storage(args.in[0].type.dtype, [&]<typename T>(T*) {
    QkCall<T> call = call_of<T>(args, 0);
    call.rstd = args.out[1].as<float>();
    if (is_of_all(args.attrs)) {
      norm_tokens<T><<<static_cast<unsigned>(call.tokens), kThreads, 0, queue>>>(call);
      return;
    }
    for_team(call, [&]<int kSize, int kItems>(int lanes) {
      const int64_t groups = call.tokens * (call.heads + 2 * call.kv_heads);
      const int64_t teams = kThreads / lanes * kHeadsAtOnce;
      norm_heads<T, kSize, kItems>
          <<<static_cast<unsigned>((groups + teams - 1) / teams), kThreads, 0, queue>>>(call, lanes);
    });
  });
  check_launch("qk_norm");
}

void run_qk_norm_grad(const KernelArgs& args, Stream& stream) {
  if (args.in[0].elems() == 0) return;
  const cudaStream_t queue = queue_of(stream);
  const bool fresh = args.attrs.integer_or("fresh", 0) != 0;
  float* const partials = reinterpret_cast<float*>(args.workspace.data());
  for_storage(args.in[0].type.dtype, [&]<typename T>(T*) {
    QkCall<T> call = call_of<T>(args, 1);
    call.dy = args.in[0].as<T>();
    call.rstd = args.in[4].as<float>();
    call.partials = partials;
    if (is_of_all(args.attrs)) {
      const int columns = (call.heads + call.kv_heads) * call.head_dim;
      const int bytes = columns * static_cast<int>(sizeof(float));
      check(cudaFuncSetAttribute(norm_tokens_grad<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
            "qk_norm_grad");
      norm_tokens_grad<T><<<kGradBlocks, kThreads, static_cast<size_t>(bytes), queue>>>(call);
      const int queries = call.heads * call.head_dim;
      combine_columns({.to = {args.out[1].as<float>()}, .count = 1, .width = queries, .fresh = fresh},
                      partials, kGradBlocks, queue);
      combine_columns(
          {.to = {args.out[2].as<float>()}, .count = 1, .width = columns - queries, .fresh = fresh},
          partials + int64_t{kGradBlocks} * queries, kGradBlocks, queue);
      return;
    }
    for_team(call, [&]<int kSize, int kItems>(int lanes) {
      norm_heads_grad<T, kSize, kItems><<<kGradBlocks, kThreads, 0, queue>>>(call, lanes);
    });
    combine_columns({.to = {args.out[1].as<float>(), args.out[2].as<float>()},
                     .count = 2,
                     .width = call.head_dim,
                     .fresh = fresh},
                    partials, kGradBlocks, queue);
  });
  check_launch("qk_norm_grad");
}

size_t workspace_grad(const CallSignature& call, int) {
  const int64_t columns = call.in[2].shape.elems() + call.in[3].shape.elems();
  return sizeof(float) * static_cast<size_t>(kGradBlocks * columns);
}

bool supports_shape(const CallSignature& call, size_t qkv) {
  if (!is_storage(call.in[qkv].dtype) || !are_packed_heads(call.in[qkv], *call.attrs)) return false;
  const PackedHeads packed = packed_heads(call.in[qkv], *call.attrs);
  if (is_of_all(*call.attrs)) return (packed.heads + packed.kv_heads) * packed.head_dim <= kMaxColumns;
  return packed.head_dim > 0 && packed.head_dim <= kMaxTeamWidth;
}
bool supports_qk_norm(const CallSignature& call) {
  return call.in.size() == 3 && all_of_type(call.in[0].dtype, call.in, 0, 3) && supports_shape(call, 0);
}
bool supports_qk_norm_grad(const CallSignature& call) {
  return call.in.size() == 7 && all_of_type(call.in[0].dtype, call.in, 0, 4) &&
         all_of_type(DType::F32, call.in, 4, 7) && supports_shape(call, 1);
}

}  // namespace

void add_qk_norm_kernels(KernelRegistry& registry) {
  registry.add({"cuda.qk_norm", Op::QkNorm, supports_qk_norm, nullptr, run_qk_norm});
  registry.add(
      {"cuda.qk_norm_grad", Op::QkNormGrad, supports_qk_norm_grad, workspace_grad, run_qk_norm_grad});
}

}  // namespace tandem::cuda
