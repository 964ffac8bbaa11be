// A parameter's tensors in the kernels of optimizers: lists of them, and how the numbers that are trained and
// the states are read and written.
#pragma once

#include <type_traits>
#include <utility>

#include "tandem/base/split_float.h"
#include "tandem/kernels/cuda/optimizer/rules.cuh"
#include "tandem/kernels/cuda/optimizer/tensor_list.cuh"
#include "tandem/kernels/cuda/streamed_group.cuh"
#include "tandem/optimizers/packed_state.h"
#include "tandem/runtime/optimizer_args.h"

namespace tandem::cuda {

inline constexpr size_t kMaxStates = 2;
template <typename Rule>
using States = std::make_index_sequence<Rule::kEntry.rule_states()>;

// A parameter's tensors. The master is null where w itself is updated; beside a bf16 w it is its low half
// (tandem/base/split_float.h).
struct UpdateItem {
  void* w;
  void* g;
  float* states[kMaxStates];
  void* master;
  int64_t elems;
  int32_t slot;  // of the parameter
  int16_t rate;  // among the call's steps
  bool decayed;
  bool aligned;  // all of them for groups of kUpdateGroup
};
static_assert(sizeof(TensorList<UpdateItem>) <= 32000);

inline constexpr int kUpdateGroup = 4;

template <int kSize, typename T>
__device__ __forceinline__ Group<T, kSize>* groups_of(T* address) {
  return reinterpret_cast<Group<T, kSize>*>(address);
}

// What lies beside weights of type W as their masters: those, or the low halves that bf16 weights lack. A
// rule that averages has whole ones.
template <typename Rule, typename W>
using Master = std::conditional_t<std::is_same_v<W, __nv_bfloat16> && !Rule::kEntry.averages, int16_t, float>;

// The numbers that are trained: weights, or masters where there are any.
template <typename W, typename M, int kSize>
__device__ __forceinline__ Group<float, kSize> read_numbers(const Group<W, kSize>* w,
                                                            const Group<M, kSize>* master, bool has_master) {
  if constexpr (std::is_same_v<M, float>) {
    if (has_master) return read_once(master);
  }
  const Group<W, kSize> weights = *w;
  Group<M, kSize> low = {};
  Group<float, kSize> numbers;
  if (std::is_same_v<M, int16_t> && has_master) low = read_once(master);
#pragma unroll
  for (int e = 0; e < kSize; ++e) {
    if constexpr (std::is_same_v<M, int16_t>) {
      numbers.value[e] = __uint_as_float(join_bits({__bfloat16_as_ushort(weights.value[e]), low.value[e]}));
    } else {
      numbers.value[e] = to_float(weights.value[e]);
    }
  }
  return numbers;
}

template <typename W, typename M, int kSize>
__device__ __forceinline__ void write_numbers(Group<W, kSize>* w, Group<M, kSize>* master, bool has_master,
                                              const Group<float, kSize>& numbers) {
  Group<W, kSize> weights;
#pragma unroll
  for (int e = 0; e < kSize; ++e) weights.value[e] = from_float<W>(numbers.value[e]);
  if constexpr (std::is_same_v<M, float>) {
    if (has_master) write_once(master, numbers);
  } else if (has_master) {
    Group<int16_t, kSize> low;
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      const SplitFloat halves = split_bits(__float_as_uint(numbers.value[e]));
      weights.value[e] = __ushort_as_bfloat16(halves.high);
      low.value[e] = halves.low;
    }
    write_once(master, low);
  }
  *w = weights;
}

// A number that a master is not stored beside, rounded as if it was.
template <typename W>
__device__ __forceinline__ W rounded_alone(float x) {
  if constexpr (std::is_same_v<W, __nv_bfloat16>) {
    return __ushort_as_bfloat16(split_bits(__float_as_uint(x)).high);
  } else {
    return from_float<W>(x);
  }
}

// A stored gradient, unscaled and clipped.
template <typename Rule>
__device__ __forceinline__ float read_gradient(const OptimizerStep<Rule>& step, float stored) {
  const float largest = op_largest(step);
  return fminf(fmaxf(__fmul_rn(stored, op_grad_factor(step)), -largest), largest);
}

// The step of one parameter; `sums` where the rule reads norms of whole ones.
template <typename Rule>
__device__ __forceinline__ OptimizerStep<Rule> step_of(const UpdateItem& item, OptimizerStep<Rule> step,
                                                       const double* sums) {
  if (!item.decayed) {
    step.decay = 0;
    step.keep = 1;
  }
  return with_trust(step, sums, item.slot, item.decayed);
}

// A parameter whose states are kept in fewer bits (tandem/optimizers/packed_state.h), bf16 where it has no
// scales.
struct PackedItem {
  UpdateItem item;
  void* codes[kMaxStates];
  float* scales[kMaxStates];
  uint64_t key;
  int64_t elems;  // as item.elems, for TensorList
};
// A launch has room for fewer of these.
using PackedList = TensorList<PackedItem, 256>;
static_assert(sizeof(PackedList) <= 32000);

// Which of a rule's states is a mean of squares; -1 where none is.
template <typename Rule>
inline constexpr int kRootState = root_state(Rule::kStates);

// What is kept of a state in 8 bits.
template <typename Rule, int kState>
__device__ __forceinline__ float read_kept(const PackedItem& packed, int64_t i) {
  return decode_state(Rule::kStates[kState].kept, static_cast<const uint8_t*>(packed.codes[kState])[i],
                      packed.scales[kState][i / kStateBlock]);
}

template <typename Rule, int kState>
__device__ __forceinline__ float read_state(const PackedItem& packed, int64_t i) {
  constexpr Kept kKept = Rule::kStates[kState].kept;
  if (packed.scales[kState] == nullptr)
    return from_bf16(static_cast<const uint16_t*>(packed.codes[kState])[i]);
  float root = 0;
  if constexpr (kKept == Kept::Share) root = read_kept<Rule, kRootState<Rule>>(packed, i);
  return state_of(kKept, read_kept<Rule, kState>(packed, i), root);
}

inline bool is_aligned_for_groups(const TensorArg& tensor) {
  return is_aligned(tensor.data, static_cast<size_t>(kUpdateGroup * dtype_bytes(tensor.type.dtype)));
}

inline UpdateItem update_item(const ParamGroup& group) {
  UpdateItem item{.w = group.w->data,
                  .g = group.g->data,
                  .states = {},
                  .master = group.master != nullptr ? group.master->data : nullptr,
                  .elems = group.w->elems(),
                  .slot = static_cast<int32_t>(group.slot),
                  .rate = static_cast<int16_t>(group.rate),
                  .decayed = group.decayed,
                  .aligned = is_aligned_for_groups(*group.w) && is_aligned_for_groups(*group.g)};
  if (group.master != nullptr) item.aligned &= is_aligned_for_groups(*group.master);
  for (size_t s = 0; s < group.states.size(); ++s) {
    item.states[s] = group.states[s].as<float>();
    item.aligned &= is_aligned_for_groups(group.states[s]);
  }
  return item;
}

inline bool is_packed(const ParamGroup& group) {
  return !group.states.empty() && group.states[0].type.dtype != DType::F32;
}

inline PackedItem packed_item(const ParamGroup& group) {
  PackedItem packed{
      .item = update_item(group), .codes = {}, .scales = {}, .key = group.key, .elems = group.w->elems()};
  for (size_t s = 0; s < group.states.size(); ++s) {
    packed.codes[s] = group.states[s].data;
    packed.scales[s] = group.scales.empty() ? nullptr : group.scales[s].as<float>();
  }
  return packed;
}

}  // namespace tandem::cuda
