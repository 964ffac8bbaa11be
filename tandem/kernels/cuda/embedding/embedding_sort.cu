// A pass sorts by one digit of the row number, the least significant first. Each block owns a stretch of the
// occurrences: it counts their digits, and in a second kernel knows from all blocks' counts where its own go.
// Inside a block the order is kept warp by warp, 32 at a time, with equal digits ranked by lane.
#include "tandem/kernels/cuda/embedding/embedding_sort.h"

#include <utility>

#include "tandem/kernels/cuda/device/cuda_check.h"

namespace tandem::cuda {
namespace {

constexpr int kDigitBits = 9;  // two passes for vocabularies up to 262143
constexpr int kDigits = 1 << kDigitBits;
constexpr int kThreads = kDigits;  // a digit each, where counts are added up
constexpr int kWarps = kThreads / 32;
constexpr int kSteps = 4;
constexpr int kPerBlock = kThreads * kSteps;
constexpr unsigned kWholeWarp = 0xffffffffu;

// What a pass reads: the ids in the first, the output of the one before in the others.
struct PassInput {
  TokenIds ids;
  const Occurrence* occurrences;  // null in the first pass
  int shift;

  __device__ Occurrence at(int i) const {
    if (occurrences != nullptr) return occurrences[i];
    const int64_t row = ids.ids[i] - ids.first;
    return {row >= 0 && row < ids.num_rows ? static_cast<int>(row) : ids.num_rows, i};
  }
  __device__ int digit(const Occurrence& occurrence) const {
    return (occurrence.row >> shift) & (kDigits - 1);
  }
};

__global__ void __launch_bounds__(kThreads) count_digits(const PassInput in, int* counts) {
  __shared__ int block_counts[kDigits];
  block_counts[threadIdx.x] = 0;
  __syncthreads();
  const int begin = static_cast<int>(blockIdx.x) * kPerBlock + static_cast<int>(threadIdx.x);
  for (int step = 0; step < kSteps; ++step) {
    const int i = begin + step * kThreads;
    if (i < in.ids.count) atomicAdd(&block_counts[in.digit(in.at(i))], 1);
  }
  __syncthreads();
  counts[blockIdx.x * kDigits + threadIdx.x] = block_counts[threadIdx.x];
}

// Where this block's first occurrence with the digit threadIdx.x goes: behind all with smaller digits, and
// those with the same digit of the blocks before. Every thread comes here.
__device__ int first_place(const int* counts) {
  __shared__ int warp_totals[kWarps];
  const int digit = static_cast<int>(threadIdx.x), lane = digit % 32, warp = digit / 32;
  int total = 0, before = 0;
#pragma unroll 8
  for (unsigned block = 0; block < gridDim.x; ++block) {
    const int count = counts[block * kDigits + threadIdx.x];
    total += count;
    if (block < blockIdx.x) before += count;
  }
  int inclusive = total;
  for (int step = 1; step < 32; step *= 2) {
    const int lower = __shfl_up_sync(kWholeWarp, inclusive, step);
    if (lane >= step) inclusive += lower;
  }
  if (lane == 31) warp_totals[warp] = inclusive;
  __syncthreads();
  int place = inclusive - total + before;
  for (int w = 0; w < warp; ++w) place += warp_totals[w];
  return place;
}

__global__ void __launch_bounds__(kThreads)
    place_by_digit(const PassInput in, const int* counts, Occurrence* sorted) {
  __shared__ int next[kWarps]
                     [kDigits];  // of a warp: how many occurrences with a digit, then their next place
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int w = 0; w < kWarps; ++w) next[w][threadIdx.x] = 0;
  int place = first_place(counts);
  __syncthreads();

  Occurrence occurrence[kSteps];
  unsigned equals[kSteps];  // the lanes of this step with the same digit
  const unsigned lanes_before = (1u << lane) - 1;
  const int begin = static_cast<int>(blockIdx.x) * kPerBlock + warp * 32 * kSteps + lane;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int i = begin + step * 32;
    occurrence[step] = i < in.ids.count ? in.at(i) : Occurrence{-1, -1};
    const bool present = occurrence[step].row >= 0;
    const int digit = present ? in.digit(occurrence[step]) : -1;
    equals[step] = __match_any_sync(kWholeWarp, digit);
    if (present && (equals[step] & lanes_before) == 0) next[warp][digit] += __popc(equals[step]);
    __syncwarp();
  }
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) {
    const int count = next[w][threadIdx.x];
    next[w][threadIdx.x] = place;
    place += count;
  }
  __syncthreads();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const bool present = occurrence[step].row >= 0;
    const int digit = in.digit(occurrence[step]);
    const int before = __popc(equals[step] & lanes_before);
    if (present) sorted[next[warp][digit] + before] = occurrence[step];
    __syncwarp();
    if (present && before == 0) next[warp][digit] += __popc(equals[step]);
    __syncwarp();
  }
}

size_t aligned_bytes(size_t bytes) { return (bytes + 63) / 64 * 64; }
size_t list_bytes(int64_t num_ids) {
  return aligned_bytes(static_cast<size_t>(num_ids) * sizeof(Occurrence));
}
int64_t num_blocks(int64_t num_ids) { return (num_ids + kPerBlock - 1) / kPerBlock; }

}  // namespace

size_t sort_workspace(int64_t num_ids) {
  return 2 * list_bytes(num_ids) + static_cast<size_t>(num_blocks(num_ids)) * kDigits * sizeof(int);
}

const Occurrence* sort_by_row(const TokenIds& ids, std::byte* workspace, cudaStream_t queue) {
  const size_t bytes = list_bytes(ids.count);
  auto* out = reinterpret_cast<Occurrence*>(workspace);
  auto* other = reinterpret_cast<Occurrence*>(workspace + bytes);
  auto* counts = reinterpret_cast<int*>(workspace + 2 * bytes);
  const auto blocks = static_cast<unsigned>(num_blocks(ids.count));
  PassInput in{ids, nullptr, 0};
  for (; (ids.num_rows >> in.shift) != 0; in.shift += kDigitBits) {
    count_digits<<<blocks, kThreads, 0, queue>>>(in, counts);
    place_by_digit<<<blocks, kThreads, 0, queue>>>(in, counts, out);
    in.occurrences = out;
    std::swap(out, other);
  }
  check_launch("sort_by_row");
  return in.occurrences;
}

}  // namespace tandem::cuda
