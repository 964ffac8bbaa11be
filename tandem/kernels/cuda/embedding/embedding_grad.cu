// The embedding's gradient without float atomics. A run is all occurrences of one row of the table, side by
// side after a stable sort, in ascending order of position. Each run is cut, from its begin, into pieces of
// at most kPieceLength that are summed in parallel; the sums of a cut run go to the workspace and a last
// kernel adds them up in order. Only then does a row's sum meet the accumulator.
#include <algorithm>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/embedding/embedding.h"
#include "tandem/kernels/cuda/embedding/embedding_sort.h"
#include "tandem/kernels/cuda/groups.cuh"

namespace tandem::cuda {
namespace {

constexpr int kPieceLength = 64;
constexpr int kThreads = 128;

struct Piece {
  int length;  // 0: no piece begins here
  int slot;    // of the sums of cut runs; -1 if this is a whole run
};

// Two slots for every kPieceLength occurrences: so many can hold the begin of one run longer than that, and
// of the last piece of another, but no more.
__host__ __device__ int num_slots(int count) { return (count + kPieceLength - 1) / kPieceLength * 2; }
__device__ __forceinline__ int slot_of(int begin, bool begins_run) {
  return begin / kPieceLength * 2 + (begins_run ? 1 : 0);
}

struct SortedRows {
  const Occurrence* occurrences;
  int count;
  int num_rows;

  __device__ int row(int i) const { return occurrences[i].row; }
  // The first index of [begin, end) with a row of at least `row`, or end.
  __device__ int lower_bound(int begin, int end, int row) const {
    while (begin < end) {
      const int middle = begin + (end - begin) / 2;
      if (this->row(middle) < row) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }
};

__global__ void __launch_bounds__(kThreads) find_pieces(const SortedRows sorted, Piece* pieces) {
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= sorted.count) return;
  pieces[i] = {0, -1};
  const int row = sorted.row(i);
  if (row == sorted.num_rows) return;
  const int begin = i == 0 || sorted.row(i - 1) != row ? i : sorted.lower_bound(0, i, row);
  if ((i - begin) % kPieceLength != 0) return;
  const int limit = min(sorted.count - i, kPieceLength);
  const int length = sorted.lower_bound(i, i + limit, row + 1) - i;
  const bool cut = begin < i || (i + kPieceLength < sorted.count && sorted.row(i + kPieceLength) == row);
  pieces[i] = {length, cut ? slot_of(i, begin == i) : -1};
}

// blockIdx.x: where the piece begins; a thread has kSize columns.
template <typename T, int kSize>
__global__ void __launch_bounds__(kThreads)
    sum_pieces(const SortedRows sorted, const Piece* pieces, const T* dy, int width, float* sums, float* acc,
               bool fresh) {
  const int begin = static_cast<int>(blockIdx.x);
  const Piece piece = pieces[begin];
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kSize;
  if (piece.length == 0 || column >= width) return;
  Group<float, kSize> sum = {};
#pragma unroll 4
  for (int k = 0; k < piece.length; ++k) {
    const int64_t position = sorted.occurrences[begin + k].position;
    const Group<T, kSize> addend = load_group<kSize>(dy + position * width + column);
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum.value[i] += to_float(addend.value[i]);
  }
  if (piece.slot >= 0) {
    store_group(sums + static_cast<int64_t>(piece.slot) * width + column, sum);
    return;
  }
  float* dst = acc + static_cast<int64_t>(sorted.row(begin)) * width + column;
  if (!fresh) {
    const Group<float, kSize> old = load_group<kSize>(dst);
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum.value[i] += old.value[i];
  }
  store_group(dst, sum);
}

// blockIdx.x: kPieceLength occurrences, among which one cut run begins at most.
__global__ void __launch_bounds__(kThreads)
    add_cut_runs(const SortedRows sorted, const Piece* pieces, const float* sums, int width, float* acc,
                 bool fresh) {
  static_assert(kPieceLength <= kThreads);
  __shared__ int shared_begin;
  if (threadIdx.x == 0) shared_begin = -1;
  __syncthreads();
  const int i = static_cast<int>(blockIdx.x) * kPieceLength + static_cast<int>(threadIdx.x);
  if (threadIdx.x < kPieceLength && i < sorted.count && pieces[i].slot == slot_of(i, true)) shared_begin = i;
  __syncthreads();
  const int begin = shared_begin, column = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  if (begin < 0 || column >= width) return;
  const int row = sorted.row(begin), end = sorted.lower_bound(begin, sorted.count, row + 1);
  float sum = 0;
#pragma unroll 8
  for (int piece = begin; piece < end; piece += kPieceLength)
    sum += sums[static_cast<int64_t>(slot_of(piece, piece == begin)) * width + column];
  float* dst = acc + static_cast<int64_t>(row) * width + column;
  *dst = fresh ? sum : *dst + sum;
}

template <typename T, int kSize>
void launch_sums(const SortedRows& sorted, const Piece* pieces, const T* dy, int width, float* sums,
                 float* acc, bool fresh, cudaStream_t queue) {
  const int groups = width / kSize, threads = std::min(kThreads, (groups + 31) / 32 * 32);
  const dim3 grid(static_cast<unsigned>(sorted.count),
                  static_cast<unsigned>((groups + threads - 1) / threads));
  sum_pieces<T, kSize>
      <<<grid, static_cast<unsigned>(threads), 0, queue>>>(sorted, pieces, dy, width, sums, acc, fresh);
}

size_t aligned_bytes(size_t bytes) { return (bytes + 63) / 64 * 64; }
size_t pieces_bytes(int64_t num_ids) { return aligned_bytes(static_cast<size_t>(num_ids) * sizeof(Piece)); }

// acc, ids, dy {first, valid} -> acc!
void run_embedding_grad(const KernelArgs& args, Stream& stream) {
  const TensorArg &ids = args.in[1], &dy = args.in[2], &acc = args.out[0];
  const cudaStream_t queue = queue_of(stream);
  const int count = static_cast<int>(ids.elems()), width = static_cast<int>(acc.type.shape.last());
  const TokenIds tokens{ids.as<int32_t>(), count, args.attrs.integer_or("first", 0),
                        static_cast<int>(args.attrs.integer_or("valid", acc.type.shape.rows()))};
  const bool fresh = args.attrs.integer_or("fresh", 0) != 0;
  if (fresh)
    check(cudaMemsetAsync(acc.data, 0, static_cast<size_t>(acc.type.bytes()), queue), "embedding_grad");

  std::byte* workspace = args.workspace.data();
  const SortedRows sorted{sort_by_row(tokens, workspace, queue), count, tokens.num_rows};
  workspace += aligned_bytes(sort_workspace(count));
  auto* pieces = reinterpret_cast<Piece*>(workspace);
  auto* sums = reinterpret_cast<float*>(workspace + pieces_bytes(count));
  find_pieces<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0, queue>>>(sorted,
                                                                                                pieces);
  for_storage(dy.type.dtype, [&]<typename T>(T*) {
    constexpr int kSize = Pack<T>::kSize;
    if (width % kSize == 0 && is_aligned(dy.data, sizeof(Group<T, kSize>)) &&
        is_aligned(acc.data, sizeof(Group<float, kSize>))) {
      launch_sums<T, kSize>(sorted, pieces, dy.as<T>(), width, sums, acc.as<float>(), fresh, queue);
    } else {
      launch_sums<T, 1>(sorted, pieces, dy.as<T>(), width, sums, acc.as<float>(), fresh, queue);
    }
  });
  const dim3 grid(static_cast<unsigned>(num_slots(count) / 2),
                  static_cast<unsigned>((width + kThreads - 1) / kThreads));
  add_cut_runs<<<grid, kThreads, 0, queue>>>(sorted, pieces, sums, width, acc.as<float>(), fresh);
  check_launch("embedding_grad");
}

size_t embedding_grad_workspace(const CallSignature& call, int) {
  const int64_t count = call.in[1].shape.elems();
  return aligned_bytes(sort_workspace(count)) + pieces_bytes(count) +
         static_cast<size_t>(num_slots(static_cast<int>(count)) * call.in[0].shape.last()) * sizeof(float);
}

bool supports_embedding_grad(const CallSignature& call) {
  return call.in.size() == 3 && call.in[0].dtype == DType::F32 && call.in[1].dtype == DType::I32 &&
         is_storage(call.in[2].dtype) && call.out[0].dtype == DType::F32;
}

}  // namespace

void add_embedding_grad_kernels(KernelRegistry& registry) {
  registry.add({"cuda.embedding_grad", Op::EmbeddingGrad, supports_embedding_grad, embedding_grad_workspace,
                run_embedding_grad});
}

}  // namespace tandem::cuda
