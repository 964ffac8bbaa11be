// The norm of all gradients together, in two steps between which ranks add up their sums. Squares of fp32 are
// exact in double and no sum of them overflows there: a sum that is not finite means a gradient that is not.
// Sums are made chunk by chunk, then piece by piece, in an order that depends on the pieces' sizes only.
#include <algorithm>
#include <numeric>
#include <vector>

#include "tandem/kernels/cuda/block_sum.cuh"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/optimizer/optimizer_kernels.h"
#include "tandem/kernels/cuda/optimizer/tensor_list.cuh"
#include "tandem/kernels/cuda/streamed_group.cuh"
#include "tandem/runtime/optimizer_args.h"

namespace tandem::cuda {
namespace {

struct GradientItem {
  const void* data;
  int64_t elems;
  int32_t partial;  // where its chunks' sums go
  bool aligned;
};

// The squares of a chunk's groups; what is left over is the caller's. Where a group is not aligned, its
// elements are read one by one, and added in the same order.
template <int kSize, bool kAligned, typename T>
__device__ __forceinline__ double square_groups(const T* src, int num_groups) {
  double sum = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < num_groups; i += kChunkThreads) {
    Group<T, kSize> group;
    if constexpr (kAligned) {
      group = read_once(reinterpret_cast<const Group<T, kSize>*>(src) + i);
    } else {
#pragma unroll
      for (int e = 0; e < kSize; ++e) group.value[e] = src[i * kSize + e];
    }
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      const double g = to_float(group.value[e]);
      sum = fma(g, g, sum);
    }
  }
  return sum;
}

template <typename T>
__global__ void __launch_bounds__(kChunkThreads)
    chunk_squares_kernel(const __grid_constant__ TensorList<GradientItem> list, double* partials) {
  constexpr int kSize = 16 / sizeof(T);
  const Chunk chunk = chunk_of_block(list);
  const GradientItem& item = list.items[chunk.tensor];
  const T* src = static_cast<const T*>(item.data) + chunk.begin;
  const int groups = chunk.elems / kSize, done = groups * kSize;
  double sum =
      item.aligned ? square_groups<kSize, true>(src, groups) : square_groups<kSize, false>(src, groups);
  sum += square_groups<1, false>(src + done, chunk.elems - done);
  sum = block_sum<kChunkThreads>(sum);
  if (threadIdx.x == 0) partials[item.partial + chunk.index] = sum;
}

// Pieces in the order of their slots.
struct PieceList {
  static constexpr int kCapacity = 2048;

  int size = 0;
  int32_t slots[kCapacity];
  int32_t begins[kCapacity + 1];  // of each piece's partials
};

constexpr int kSlotThreads = 256;

// A block for each slot: that of its first piece in the list.
__global__ void __launch_bounds__(kSlotThreads)
    sum_slots_kernel(const __grid_constant__ PieceList pieces, const double* partials, const float* hyper,
                     double* sums, int32_t* bad_pieces) {
  const auto first = static_cast<int>(blockIdx.x);
  const int slot = pieces.slots[first];
  double total = 0;
  int bad = 0;
  if (first == 0 || pieces.slots[first - 1] != slot) {
    for (int piece = first; piece < pieces.size && pieces.slots[piece] == slot; ++piece) {
      const double* begin = partials + pieces.begins[piece];
      const double sum = block_sum_of<kSlotThreads>(pieces.begins[piece + 1] - pieces.begins[piece],
                                                    [begin](int64_t i) { return begin[i]; });
      total += sum;
      bad += isfinite(sum) ? 0 : 1;
    }
    const double inv_scale = hyper[kHyperInvScale];
    if (threadIdx.x == 0) sums[slot] += total * (inv_scale * inv_scale);
  }
  if (threadIdx.x == 0) bad_pieces[first] = bad;
}

__global__ void __launch_bounds__(kSlotThreads)
    finish_sums_kernel(const int32_t* bad_pieces, int64_t num_pieces, const double* stats, int64_t num_stats,
                       double* sums) {
  const double bad =
      block_sum_of<kSlotThreads>(num_pieces, [&](int64_t i) { return static_cast<double>(bad_pieces[i]); });
  if (threadIdx.x == 0) sums[0] = bad;
  for (int64_t i = threadIdx.x; i < num_stats; i += kSlotThreads) sums[1 + i] = stats[i];
}

__global__ void __launch_bounds__(kSlotThreads)
    global_norm_kernel(const double* sums, int64_t num_slots, double* norm) {
  const double sum = block_sum_of<kSlotThreads>(num_slots, [sums](int64_t i) { return sums[i]; });
  if (threadIdx.x != 0) return;
  norm[0] = sqrt(sum);
  norm[1] = sums[num_slots] == 0 && isfinite(sum) ? 1 : 0;
}

// Scratch: a sum for each chunk, and for each piece whether it is not finite.
int64_t total_chunks(std::span<const TensorType> pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), int64_t{0}, [](int64_t sum, const TensorType& piece) {
    return sum + num_chunks(piece.shape.elems());
  });
}
size_t workspace(const CallSignature& call, int) {
  const std::span pieces = std::span(call.in).subspan(2);
  return static_cast<size_t>(total_chunks(pieces)) * sizeof(double) + pieces.size() * sizeof(int32_t);
}

void square_chunks(DType dtype, std::span<const TensorArg> pieces, std::span<const int32_t> partials_at,
                   double* partials, cudaStream_t queue) {
  TensorList<GradientItem> list;
  const auto launch = [&] {
    if (list.num_blocks() > 0) {
      for_storage(dtype, [&]<typename T>(T*) {
        chunk_squares_kernel<T>
            <<<static_cast<unsigned>(list.num_blocks()), kChunkThreads, 0, queue>>>(list, partials);
      });
      check_launch("square_sums");
    }
    list.size = 0;
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    const TensorArg& piece = pieces[i];
    if (piece.type.dtype != dtype) continue;
    list.add({.data = piece.data,
              .elems = piece.elems(),
              .partial = partials_at[i],
              .aligned = is_aligned(piece.data, 16)});
    if (list.full()) launch();
  }
  launch();
}

void run_square_sums(const KernelArgs& args, Stream& stream) {
  const cudaStream_t queue = queue_of(stream);
  const std::span<const TensorArg> pieces = args.in.subspan(2);
  const std::vector<int64_t> slots = read_slots(args);
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return slots[a] < slots[b]; });

  int64_t total = 0;  // partials so far, in that order
  std::vector<int32_t> partials_at(pieces.size());
  for (size_t piece : order) {
    partials_at[piece] = static_cast<int32_t>(total);
    total += num_chunks(pieces[piece].elems());
    TANDEM_CHECK(total <= INT32_MAX, "{} chunks", total);
  }
  auto* partials = reinterpret_cast<double*>(args.workspace.data());
  auto* bad_pieces = reinterpret_cast<int32_t*>(partials + total);
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    square_chunks(dtype, pieces, partials_at, partials, queue);

  const TensorArg& stats = args.in[1];
  auto* sums = args.out[0].as<double>();
  const int64_t num_slots = args.attrs.integer("num_slots");
  check(cudaMemsetAsync(sums, 0, static_cast<size_t>(num_slots) * sizeof(double), queue), "square_sums");
  for (size_t begin = 0; begin < order.size(); begin += PieceList::kCapacity) {
    PieceList list;
    for (size_t i = begin; i < order.size() && list.size < PieceList::kCapacity; ++i) {
      list.slots[list.size] = static_cast<int32_t>(slots[order[i]]);
      list.begins[list.size++] = partials_at[order[i]];
    }
    const size_t end = begin + static_cast<size_t>(list.size);
    list.begins[list.size] = end < order.size() ? partials_at[order[end]] : static_cast<int32_t>(total);
    sum_slots_kernel<<<static_cast<unsigned>(list.size), kSlotThreads, 0, queue>>>(
        list, partials, args.in[0].as<const float>(), sums, bad_pieces + begin);
    check_launch("square_sums");
  }
  finish_sums_kernel<<<1, kSlotThreads, 0, queue>>>(bad_pieces, static_cast<int64_t>(pieces.size()),
                                                    stats.as<const double>(), stats.elems(),
                                                    sums + num_slots);
  check_launch("square_sums");
}

bool supports_square_sums(const CallSignature& call) {
  return call.in[0].dtype == DType::F32 && call.in[1].dtype == DType::F64 &&
         call.out[0].dtype == DType::F64 &&
         std::all_of(call.in.begin() + 2, call.in.end(),
                     [](const TensorType& g) { return is_storage(g.dtype); });
}

bool supports_global_norm(const CallSignature& call) {
  return call.in[0].dtype == DType::F64 && call.out[0].dtype == DType::F64;
}
void run_global_norm(const KernelArgs& args, Stream& stream) {
  global_norm_kernel<<<1, kSlotThreads, 0, queue_of(stream)>>>(
      args.in[0].as<const double>(), args.attrs.integer("num_slots"), args.out[0].as<double>());
  check_launch("global_norm");
}

}  // namespace

void add_square_sums_kernels(KernelRegistry& registry) {
  registry.add({"cuda.square_sums", Op::SquareSums, supports_square_sums, workspace, run_square_sums});
  registry.add({"cuda.global_norm", Op::GlobalNorm, supports_global_norm, nullptr, run_global_norm});
}

}  // namespace tandem::cuda
