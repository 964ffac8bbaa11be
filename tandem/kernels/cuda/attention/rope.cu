// Rotary positions, in place on packed qkv: the pair (i, i + dims / 2) among the first `dims` features of
// every query and key head is turned by t times its frequency (base/rope_frequencies.h), and back by the
// gradient. A block takes one position, makes its few cosines and sines once, and turns the heads of several
// sequences with them; where tokens bring positions of their own, it takes one token.
//
// t times a frequency needs more bits than fp32 has: it is made in double and in turns, so that the whole
// turns can be dropped exactly; what is left is good for fp32.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tandem/base/rope_frequencies.h"
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
  float factor;  // of cosines and sines
};

struct RopeShape {
  int batch;
  int batch_step;  // sequences a block
  int tokens;
  int turned_heads;  // queries and keys
  int head_dim;
  int pairs;       // of a head, that turn
  int64_t stride;  // elements of a token
};

// Where tokens stand: each of them says it, or the first row does; else at their places in the sequence.
struct Positions {
  const int32_t* of_tokens = nullptr;
  const int32_t* of_first = nullptr;

  __device__ int at(int64_t sequence_begin, int t) const {
    if (of_tokens != nullptr) return of_tokens[sequence_begin + t];
    return of_first == nullptr ? t : *of_first + t;
  }
};

template <int kSize, typename T>
__global__ void __launch_bounds__(kThreads) rope(T* qkv, const Positions positions, const RopeShape shape,
                                                 const __grid_constant__ Turns turns, float direction) {
  alignas(32) __shared__ float cosines[kMaxPairs];
  alignas(32) __shared__ float sines[kMaxPairs];
  const int t = static_cast<int>(blockIdx.x);
  const int first_batch = static_cast<int>(blockIdx.y) * shape.batch_step;
  const int position = positions.at(int64_t{first_batch} * shape.tokens, t);
  for (int i = static_cast<int>(threadIdx.x); i < shape.pairs; i += kThreads) {
    const double turned = position * turns.per_position[i];
    float sine = 0, cosine = 1;
    sincospif(2 * static_cast<float>(turned - rint(turned)), &sine, &cosine);
    cosines[i] = turns.factor * cosine;
    sines[i] = direction * turns.factor * sine;
  }
  __syncthreads();
  const int groups = shape.pairs / kSize;  // a head
  const int num_batches = min(shape.batch_step, shape.batch - first_batch);
  for (int item = static_cast<int>(threadIdx.x); item < num_batches * shape.turned_heads * groups;
       item += kThreads) {
    const int i = item % groups * kSize;
    const int head = item / groups % shape.turned_heads;
    const int batch = first_batch + item / groups / shape.turned_heads;
    T* first = qkv + (int64_t{batch} * shape.tokens + t) * shape.stride + head * shape.head_dim + i;
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

int64_t turned_dims(const PackedHeads& packed, const Attrs& attrs) {
  return attrs.integer_or("dims", packed.head_dim);
}

Turns turns_of(const PackedHeads& packed, const Attrs& attrs) {
  const RopeFrequencies frequencies =
      rope_frequencies(attrs.real("theta"), turned_dims(packed, attrs), attrs.text_or("scaling", "none"),
                       attrs.integer_or("context", packed.tokens));
  Turns turns = {};
  for (size_t i = 0; i < frequencies.values.size(); ++i)
    turns.per_position[i] = frequencies.values[i] / (2 * std::numbers::pi);
  turns.factor = static_cast<float>(frequencies.factor);
  return turns;
}

template <int kSize, typename T>
void launch_rope(T* qkv, const Positions& positions, const PackedHeads& packed, int64_t dims,
                 const Turns& turns, float direction, cudaStream_t queue) {
  RopeShape shape = {.batch = static_cast<int>(packed.batch),
                     .batch_step = 1,
                     .tokens = static_cast<int>(packed.tokens),
                     .turned_heads = static_cast<int>(packed.heads + packed.kv_heads),
                     .head_dim = static_cast<int>(packed.head_dim),
                     .pairs = static_cast<int>(dims / 2),
                     .stride = packed.qkv_stride()};
  const int groups = shape.turned_heads * (shape.pairs / kSize);  // a token
  constexpr int kMaxGridY = 65535;
  if (positions.of_tokens == nullptr)
    shape.batch_step = std::max({1, kGroupsPerBlock / groups, (shape.batch + kMaxGridY - 1) / kMaxGridY});
  const dim3 grid(static_cast<unsigned>(shape.tokens),
                  static_cast<unsigned>((shape.batch + shape.batch_step - 1) / shape.batch_step));
  rope<kSize><<<grid, kThreads, 0, queue>>>(qkv, positions, shape, turns, direction);
  check_launch("rope");
}

Positions positions_of(const KernelArgs& args) {
  if (args.in.size() < 2) return {};
  const auto* given = args.in[1].as<int32_t>();
  if (args.attrs.integer_or("positions", 0) != 0) return {.of_tokens = given};
  return {.of_first = given};
}

// Direction 1 turns, -1 turns back.
void rotate(const KernelArgs& args, Stream& stream, float direction) {
  const TensorArg& qkv = args.out[0];
  TANDEM_CHECK(args.in[0].data == qkv.data, "rope works in place");
  if (qkv.elems() == 0) return;
  const PackedHeads packed = packed_heads(qkv.type, args.attrs);
  const int64_t dims = turned_dims(packed, args.attrs);
  const Turns turns = turns_of(packed, args.attrs);
  const Positions positions = positions_of(args);
  for_storage(qkv.type.dtype, [&]<typename T>(T*) {
    constexpr int kSize = Pack<T>::kSize;
    if (dims / 2 % kSize == 0 && packed.head_dim % kSize == 0 && is_aligned(qkv.data, 16)) {
      launch_rope<kSize>(qkv.as<T>(), positions, packed, dims, turns, direction, queue_of(stream));
    } else {
      launch_rope<1>(qkv.as<T>(), positions, packed, dims, turns, direction, queue_of(stream));
    }
  });
}

void run_rope(const KernelArgs& args, Stream& stream) { rotate(args, stream, 1); }
void run_rope_grad(const KernelArgs& args, Stream& stream) { rotate(args, stream, -1); }

bool supports(const CallSignature& call) {
  if (!is_storage(call.in[0].dtype) || !are_packed_heads(call.in[0], *call.attrs)) return false;
  const PackedHeads packed = packed_heads(call.in[0], *call.attrs);
  constexpr int64_t kMaxRows = 65535;  // of a grid, of which positions of their own take one a sequence
  if (call.in.size() > 1 && (call.in[1].dtype != DType::I32 || packed.batch > kMaxRows)) return false;
  const int64_t dims = turned_dims(packed, *call.attrs);
  return dims > 0 && dims % 2 == 0 && dims <= packed.head_dim && dims / 2 <= kMaxPairs;
}

}  // namespace

void add_rope_kernels(KernelRegistry& registry) {
  registry.add({"cuda.rope", Op::Rope, supports, nullptr, run_rope});
  registry.add({"cuda.rope_grad", Op::RopeGrad, supports, nullptr, run_rope_grad});
}

}  // namespace tandem::cuda
