// Rotary positions, in place on packed qkv: the pair (i, i + head_dim / 2) of every query and key head is
// turned by t * theta^(-2 i / head_dim), and back by the gradient. A block takes one position, makes its few
// cosines and sines once, and turns the heads of several sequences with them.
//
// t times a frequency needs more bits than fp32 has: it is made in double and in turns, so that the whole
// turns can be dropped exactly; what is left is good for fp32.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tandem/kernels/cuda/attention/packed_heads.h"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/groups.cuh"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxPairs = 256;         // of a head
constexpr int kGroupsPerBlock = 1024;  // about: enough to be worth the table

struct Turns {
  double per_position[kMaxPairs];
};

struct RopeShape {
  int batch;
  int batch_step;  // sequences a block
  int tokens;
  int turned_heads;  // queries and keys
  int pairs;         // a head
  int64_t stride;    // elements of a token
};

template <int kSize, typename T>
__global__ void __launch_bounds__(kThreads)
    rope(T* qkv, const RopeShape shape, const __grid_constant__ Turns turns, float direction) {
  alignas(32) __shared__ float cosines[kMaxPairs];
  alignas(32) __shared__ float sines[kMaxPairs];
  const int t = static_cast<int>(blockIdx.x);
  for (int i = static_cast<int>(threadIdx.x); i < shape.pairs; i += kThreads) {
    const double turned = t * turns.per_position[i];
    float sine = 0, cosine = 1;
    sincospif(2 * static_cast<float>(turned - rint(turned)), &sine, &cosine);
    cosines[i] = cosine;
    sines[i] = direction * sine;
  }
  __syncthreads();
  const int groups = shape.pairs / kSize;  // a head
  const int first_batch = static_cast<int>(blockIdx.y) * shape.batch_step;
  const int num_batches = min(shape.batch_step, shape.batch - first_batch);
  for (int item = static_cast<int>(threadIdx.x); item < num_batches * shape.turned_heads * groups;
       item += kThreads) {
    const int i = item % groups * kSize;
    const int head = item / groups % shape.turned_heads;
    const int batch = first_batch + item / groups / shape.turned_heads;
    T* first = qkv + (int64_t{batch} * shape.tokens + t) * shape.stride + head * 2 * shape.pairs + i;
    T* second = first + shape.pairs;
    Group<T, kSize> a = load_group<kSize>(first), b = load_group<kSize>(second);
    const auto cosine = load_group<kSize>(cosines + i), sine = load_group<kSize>(sines + i);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      const float x = to_float(a.value[k]), y = to_float(b.value[k]);
      a.value[k] = from_float<T>(x * cosine.value[k] - y * sine.value[k]);
      b.value[k] = from_float<T>(y * cosine.value[k] + x * sine.value[k]);
    }
    store_group(first, a);
    store_group(second, b);
  }
}

Turns turns_of(const PackedHeads& packed, double theta) {
  Turns turns = {};
  for (int64_t i = 0; i < packed.head_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(packed.head_dim);
    turns.per_position[i] = std::pow(theta, exponent) / (2 * std::numbers::pi);
  }
  return turns;
}

template <int kSize, typename T>
void launch_rope(T* qkv, const PackedHeads& packed, const Turns& turns, float direction, cudaStream_t queue) {
  RopeShape shape = {.batch = static_cast<int>(packed.batch),
                     .batch_step = 1,
                     .tokens = static_cast<int>(packed.tokens),
                     .turned_heads = static_cast<int>(packed.heads + packed.kv_heads),
                     .pairs = static_cast<int>(packed.head_dim / 2),
                     .stride = packed.qkv_stride()};
  const int groups = shape.turned_heads * (shape.pairs / kSize);  // a token
  constexpr int kMaxGridY = 65535;
  shape.batch_step = std::max({1, kGroupsPerBlock / groups, (shape.batch + kMaxGridY - 1) / kMaxGridY});
  const dim3 grid(static_cast<unsigned>(shape.tokens),
                  static_cast<unsigned>((shape.batch + shape.batch_step - 1) / shape.batch_step));
  rope<kSize><<<grid, kThreads, 0, queue>>>(qkv, shape, turns, direction);
  check_launch("rope");
}

// Direction 1 turns, -1 turns back.
void rotate(const KernelArgs& args, Stream& stream, float direction) {
  const TensorArg& qkv = args.out[0];
  TANDEM_CHECK(args.in[0].data == qkv.data, "rope works in place");
  if (qkv.elems() == 0) return;
  const PackedHeads packed = packed_heads(qkv.type, args.attrs);
  const Turns turns = turns_of(packed, args.attrs.real("theta"));
  for_storage(qkv.type.dtype, [&]<typename T>(T*) {
    constexpr int kSize = Pack<T>::kSize;
    if (packed.head_dim / 2 % kSize == 0 && is_aligned(qkv.data, 16)) {
      launch_rope<kSize>(qkv.as<T>(), packed, turns, direction, queue_of(stream));
    } else {
      launch_rope<1>(qkv.as<T>(), packed, turns, direction, queue_of(stream));
    }
  });
}

void run_rope(const KernelArgs& args, Stream& stream) { rotate(args, stream, 1); }
void run_rope_grad(const KernelArgs& args, Stream& stream) { rotate(args, stream, -1); }

bool supports(const CallSignature& call) {
  if (!is_storage(call.in[0].dtype) || !are_packed_heads(call.in[0], *call.attrs)) return false;
  const int64_t head_dim = packed_heads(call.in[0], *call.attrs).head_dim;
  return head_dim > 0 && head_dim % 2 == 0 && head_dim / 2 <= kMaxPairs;
}

}  // namespace

void add_rope_kernels(KernelRegistry& registry) {
  registry.add({"cuda.rope", Op::Rope, supports, nullptr, run_rope});
  registry.add({"cuda.rope_grad", Op::RopeGrad, supports, nullptr, run_rope_grad});
}

}  // namespace tandem::cuda
