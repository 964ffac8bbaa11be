// The gradient of cross-entropy as a stream of rows through blocks that stay. Memory is kept busy by requests
// that run ahead of the work, across rows: a thread has kStreamSlots groups of 16 bytes in shared memory or
// on their way to it, and asks for another whenever it is done with one. It uses only what it asked for
// itself, so no barrier guards the slots. Of the row at work the first groups move to registers, which frees
// their slots at once; a longer row's others stay in their slots until they are overwritten by their
// gradient.
//
// Rows need not begin at a multiple of 16 bytes: the first and the last group of a row may also hold elements
// of its neighbours, or of the gap between rows, which count as -inf and are not written.
#pragma once

#include "tandem/kernels/cuda/async_copy.cuh"
#include "tandem/kernels/cuda/loss/logit_row.cuh"
#include "tandem/kernels/cuda/loss/loss_kernels.h"

namespace tandem::cuda {

inline constexpr int kStreamSlots = 14;  // 224 KB for 1024 threads
inline constexpr int kStreamHeld = 8;    // groups of a row that a thread has in registers
inline constexpr int kStreamAhead = 3;   // slots that a row leaves for the next one, at least
// Groups of a row that a thread can take.
inline constexpr int kStreamRounds = kStreamHeld + kStreamSlots - kStreamAhead;

struct StreamedRows {
  const int32_t* targets;
  const float* scale;
  int rows;
  int vocab;
  int64_t pitch;  // elements from a row to the next
  int rounds;     // groups of a thread in a row, at most
  RowLoss* losses;
};

// A row as its groups: columns [group * kSize - lead, + kSize).
template <typename T>
struct StreamedRow {
  static constexpr int kSize = 16 / sizeof(T);
  using Groups = Group<T, kSize>;

  Groups* groups;
  int lead;  // elements of the row before, in the first group
  int vocab;

  __device__ __forceinline__ StreamedRow(T* logits, int row, const StreamedRows& in) : vocab(in.vocab) {
    const int64_t begin = row * in.pitch;
    groups = reinterpret_cast<Groups*>(logits) + begin / kSize;
    lead = static_cast<int>(begin % kSize);
  }
  __device__ __forceinline__ int num_groups() const { return (lead + vocab + kSize - 1) / kSize; }
  __device__ __forceinline__ bool whole(int group) const {
    return group * kSize >= lead && (group + 1) * kSize <= lead + vocab;
  }
  __device__ __forceinline__ bool has(int group, int element) const {
    const int column = group * kSize + element - lead;
    return column >= 0 && column < vocab;
  }
  __device__ __forceinline__ T* at(int column) const { return reinterpret_cast<T*>(groups) + lead + column; }
  __device__ __forceinline__ void drop_neighbours(int group, Groups& values) const {
    if (whole(group)) return;
#pragma unroll
    for (int e = 0; e < kSize; ++e)
      if (!has(group, e)) values.value[e] = from_float<T>(-INFINITY);
  }
  __device__ __forceinline__ void write(int group, const Groups& values) const {
    if (whole(group)) {
      write_once(groups + group, values);
      return;
    }
#pragma unroll
    for (int e = 0; e < kSize; ++e)
      if (has(group, e)) groups[group].value[e] = values.value[e];
  }
};

// What a thread asks for, in the order in which it uses it: its groups of each row of the block. Each request
// ends a copy group, also beyond the last row.
template <typename T, int kThreads>
class StreamRequests {
  using Row = StreamedRow<T>;
  using Groups = typename Row::Groups;

 public:
  __device__ __forceinline__ StreamRequests(T* logits, const StreamedRows& in) : logits_(logits), in_(in) {
    begin_row(blockIdx.x);
  }
  __device__ __forceinline__ void next_into(Groups* slot) {
    if (left_ > 0) copy_async(slot, next_);
    end_copy_group();
    next_ += kThreads;
    left_ -= kThreads;
    if (++round_ == in_.rounds) begin_row(row_ + gridDim.x);
  }

 private:
  __device__ __forceinline__ void begin_row(int row) {
    row_ = row;
    round_ = 0;
    left_ = 0;
    if (row >= in_.rows) return;
    const Row values(logits_, row, in_);
    next_ = values.groups + threadIdx.x;
    left_ = values.num_groups() - static_cast<int>(threadIdx.x);
  }

  T* logits_;
  const StreamedRows& in_;
  int row_;
  int round_;
  const Groups* next_ = nullptr;
  int left_;  // groups of the row from next_ on
};

template <int kPending = kStreamSlots - 1>
__device__ __forceinline__ void wait_for_all_but(int pending) {
  if constexpr (kPending > 0) {
    if (pending < kPending) return wait_for_all_but<kPending - 1>(pending);
  }
  wait_copy_groups<kPending>();
}

template <typename T, int kSize>
__device__ __forceinline__ float largest_of(const Group<T, kSize>& group) {
  if constexpr (sizeof(T) == 2) {
    using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    const auto* pairs = reinterpret_cast<const Pair*>(&group);
    Pair largest = pairs[0];
#pragma unroll
    for (int i = 1; i < kSize / 2; ++i) largest = __hmax2(largest, pairs[i]);
    return fmaxf(to_float(largest.x), to_float(largest.y));
  } else {
    float largest = group.value[0];
#pragma unroll
    for (int e = 1; e < kSize; ++e) largest = fmaxf(largest, group.value[e]);
    return largest;
  }
}

// The maximum of some logits, and the sum of their exp(logit - largest).
struct PartMass {
  float largest = -INFINITY;
  float sum = 0;

  __device__ __forceinline__ void rescale(float to) {
    if (largest != to) sum *= fast_exp(largest - to);
    largest = to;
  }
  __device__ __forceinline__ PartMass over_warp() const {
    PartMass all = *this;
    all.rescale(warp_max(largest));
    all.sum = warp_sum(all.sum);
    return all;
  }
};

// Of one thread's groups of a row.
struct StreamMass : PartMass {
  int round = 0;  // of the first group that holds the largest

  // Adds the groups of rounds begin + k for which present(k).
  template <int kCount, typename Groups, typename Present>
  __device__ __forceinline__ void add(const Groups* groups, int begin, const Present& present) {
    float to = largest;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      if (!present(k)) continue;
      const float in_group = largest_of(groups[k]);
      if (in_group > to) {
        to = in_group;
        round = begin + k;
      }
    }
    rescale(to);
    // While all logits are -inf there is nothing to sum, but a NaN among them must still reach the sum.
    const float shift = to == -INFINITY ? 0 : to;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      if (!present(k)) continue;
#pragma unroll
      for (const auto& value : groups[k].value) sum += fast_exp(to_float(value) - shift);
    }
  }
};

// Whether a column of the group before `target` holds `value`.
template <typename T>
__device__ __forceinline__ bool holds_before(const StreamedRow<T>& row, int group, int target, float value) {
  const auto values = row.groups[group];
  bool found = false;
#pragma unroll
  for (int e = 0; e < StreamedRow<T>::kSize; ++e) {
    const int column = group * StreamedRow<T>::kSize + e - row.lead;
    found |= column >= 0 && column < target && to_float(values.value[e]) == value;
  }
  return found;
}

// Zeros where a row is ignored.
template <typename Groups>
__device__ __forceinline__ void to_probabilities(Groups& logits, bool ignored, float largest, float factor) {
  using T = std::remove_reference_t<decltype(logits.value[0])>;
  if (ignored) {
#pragma unroll
    for (T& value : logits.value) value = from_float<T>(0);
  } else {
#pragma unroll
    for (T& value : logits.value) value = from_float<T>(fast_exp(to_float(value) - largest) * factor);
  }
}

template <typename T, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    cross_entropy_stream_kernel(T* logits, const __grid_constant__ StreamedRows in) {
  using Row = StreamedRow<T>;
  using Groups = typename Row::Groups;
  constexpr int kWarps = kThreads / 32;
  constexpr int kBatch = 4, kSlotBatch = 2;
  static_assert(kStreamHeld % kBatch == 0);
  extern __shared__ int4 shared[];
  // Of every other row, so that one barrier a row is enough.
  __shared__ PartMass warp_masses[2][kWarps];
  __shared__ bool wrong[2];

  const int thread = threadIdx.x, stride = gridDim.x;
  auto* const slots = reinterpret_cast<Groups*>(shared) + thread;
  const auto slot_after = [](int slot) { return slot + 1 == kStreamSlots ? 0 : slot + 1; };
  StreamRequests<T, kThreads> requests(logits, in);
  for (int slot = 0; slot < kStreamSlots; ++slot) requests.next_into(slots + slot * kThreads);

  const float scale = *in.scale;
  int target = in.targets[blockIdx.x];
  int slot = 0, parity = 0, at_row = blockIdx.x;
  for (; at_row < in.rows; at_row += stride, parity ^= 1) {
    const Row row(logits, at_row, in);
    const int num_groups = row.num_groups();
    const float at_target = target >= 0 && target < in.vocab ? to_float(*row.at(target)) : NAN;
    const int next_target = at_row < in.rows - stride ? in.targets[at_row + stride] : -1;
    const auto present = [&](int round) { return round * kThreads + thread < num_groups; };

    Groups held[kStreamHeld];
    StreamMass mine;
#pragma unroll
    for (int begin = 0; begin < kStreamHeld; begin += kBatch) {
#pragma unroll
      for (int k = begin; k < begin + kBatch; ++k) {
        if (k >= in.rounds) continue;
        wait_copy_groups<kStreamSlots - 1>();
        held[k] = slots[slot * kThreads];
        requests.next_into(slots + slot * kThreads);
        slot = slot_after(slot);
        if (present(k)) row.drop_neighbours(k * kThreads + thread, held[k]);
      }
      mine.add<kBatch>(held + begin, begin, [&](int k) { return present(begin + k); });
    }
    const int kept_slot = slot;
    for (int begin = kStreamHeld; begin < in.rounds; begin += kSlotBatch) {
      const int end = min(begin + kSlotBatch, in.rounds);
      wait_for_all_but(kStreamSlots - (end - kStreamHeld));
      Groups batch[kSlotBatch];
#pragma unroll
      for (int k = 0; k < kSlotBatch; ++k) {
        if (begin + k >= end) continue;
        batch[k] = slots[slot * kThreads];
        slot = slot_after(slot);
        if (present(begin + k)) row.drop_neighbours((begin + k) * kThreads + thread, batch[k]);
      }
      mine.add<kSlotBatch>(batch, begin, [&](int k) { return begin + k < end && present(begin + k); });
    }

    const PartMass in_warp = mine.over_warp();
    if (thread % 32 == 0) warp_masses[parity][thread / 32] = in_warp;
    if (thread == 0) wrong[parity] = false;
    __syncthreads();
    if (thread == 0 && at_row >= stride) in.losses[at_row - stride].correct = wrong[parity ^ 1] ? 0 : 1;
    const PartMass all = (thread % 32 < kWarps ? warp_masses[parity][thread % 32] : PartMass()).over_warp();
    const bool ignored = target < 0;
    const auto margin = [&] { return static_cast<double>(at_target) - all.largest; };
    if (thread == 0) in.losses[at_row].nll = ignored ? 0 : log(static_cast<double>(all.sum)) - margin();

    if (ignored || at_target != all.largest) {
      if (thread == 0) wrong[parity] = true;
    } else if (mine.largest == all.largest && present(mine.round)) {
      // A prediction is the first of the largest. The thread has not overwritten its groups yet.
      if (holds_before(row, mine.round * kThreads + thread, target, all.largest)) wrong[parity] = true;
    }

    const float factor = scale / all.sum;
    const auto write_gradient = [&](int round, Groups values) {
      if (!present(round)) return;
      to_probabilities(values, ignored, all.largest, factor);
      row.write(round * kThreads + thread, values);
    };
    for (int k = kStreamHeld, at = kept_slot; k < in.rounds; ++k, at = slot_after(at)) {
      const Groups values = slots[at * kThreads];
      requests.next_into(slots + at * kThreads);
      write_gradient(k, values);
    }
#pragma unroll
    for (int k = 0; k < kStreamHeld; ++k) write_gradient(k, held[k]);
    // Near a sure prediction the difference p - 1 would cancel in fp32.
    if (!ignored && target < in.vocab && (target + row.lead) / Row::kSize % kThreads == thread)
      *row.at(target) = from_float<T>(static_cast<float>((exp(margin()) / all.sum - 1) * scale));
    target = next_target;
  }
  __syncthreads();
  if (thread == 0) in.losses[at_row - stride].correct = wrong[parity ^ 1] ? 0 : 1;
}

}  // namespace tandem::cuda
