// The kernels of all optimizers, each over all parameters at once. An update is bound by memory: weight,
// gradient and states are read once and written once, and the gradient's zeroing rides along. One thread
// works out the step's scalars (tandem/optimizers/step.h) ahead of all others. rules.cuh has the rules.
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/base/split_float.h"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/optimizer/optimizer_kernels.h"
#include "tandem/kernels/cuda/optimizer/rules.cuh"
#include "tandem/kernels/cuda/optimizer/tensor_list.cuh"
#include "tandem/kernels/cuda/register.h"
#include "tandem/kernels/cuda/streamed_group.cuh"
#include "tandem/optimizers/packed_state.h"
#include "tandem/runtime/optimizer_args.h"

namespace tandem::cuda {
namespace {

template <typename Rule>
__global__ void optimizer_step_kernel(const float* hyper, const double* norm, GroupFactors factors,
                                      OptimizerStep<Rule>* step) {
  *step = optimizer_step<Rule>(hyper, norm, factors);
}

constexpr size_t kMaxStates = 2;
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
  int32_t rate;  // among the call's steps
  bool decayed;
  bool aligned;  // all of them for groups of kUpdateGroup
};
static_assert(sizeof(TensorList<UpdateItem>) <= 32000);

constexpr int kUpdateGroup = 4;

template <int kSize, typename T>
__device__ __forceinline__ Group<T, kSize>* groups_of(T* address) {
  return reinterpret_cast<Group<T, kSize>*>(address);
}

template <int kSize, typename G>
__device__ __forceinline__ void zero_groups(G* g, int num_groups) {
  Group<G, kSize> zeros;
#pragma unroll
  for (int e = 0; e < kSize; ++e) zeros.value[e] = from_float<G>(0);
  for (int i = threadIdx.x; i < num_groups; i += kChunkThreads) write_once(groups_of<kSize>(g) + i, zeros);
}

// What lies beside weights of type W as their masters: those, or the low halves that bf16 weights lack.
template <typename W>
using Master = std::conditional_t<std::is_same_v<W, __nv_bfloat16>, int16_t, float>;

// The numbers that are trained: weights, or masters where there are any.
template <typename W, int kSize>
__device__ __forceinline__ Group<float, kSize> read_numbers(const Group<W, kSize>* w,
                                                            const Group<Master<W>, kSize>* master,
                                                            bool has_master) {
  if constexpr (std::is_same_v<Master<W>, float>) {
    if (has_master) return read_once(master);
  }
  const Group<W, kSize> weights = *w;
  Group<Master<W>, kSize> low = {};
  Group<float, kSize> numbers;
  if (std::is_same_v<Master<W>, int16_t> && has_master) low = read_once(master);
#pragma unroll
  for (int e = 0; e < kSize; ++e) {
    if constexpr (std::is_same_v<Master<W>, int16_t>) {
      numbers.value[e] = __uint_as_float(join_bits({__bfloat16_as_ushort(weights.value[e]), low.value[e]}));
    } else {
      numbers.value[e] = to_float(weights.value[e]);
    }
  }
  return numbers;
}

template <typename W, int kSize>
__device__ __forceinline__ void write_numbers(Group<W, kSize>* w, Group<Master<W>, kSize>* master,
                                              bool has_master, const Group<float, kSize>& numbers) {
  Group<W, kSize> weights;
#pragma unroll
  for (int e = 0; e < kSize; ++e) weights.value[e] = from_float<W>(numbers.value[e]);
  if constexpr (std::is_same_v<Master<W>, float>) {
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

// Updates num_groups groups that begin `at` elements into the parameter.
template <int kSize, typename W, typename G, typename Rule, size_t... kStates>
__device__ __forceinline__ void update_groups(const UpdateItem& item, int64_t at, int num_groups,
                                              const OptimizerStep<Rule>& step, bool keep_gradients,
                                              std::index_sequence<kStates...>) {
  static_assert(sizeof...(kStates) <= kMaxStates);
  auto* w = groups_of<kSize>(static_cast<W*>(item.w) + at);
  auto* g = groups_of<kSize>(static_cast<G*>(item.g) + at);
  constexpr size_t kRoom = sizeof...(kStates) + 1;  // an array has at least one element
  [[maybe_unused]] Group<float, kSize>* const states[kRoom] = {
      groups_of<kSize>(item.states[kStates] + at)...};
  const float factor = op_grad_factor(step);
  auto* master = groups_of<kSize>(static_cast<Master<W>*>(item.master) + at);
  const bool has_master = item.master != nullptr;
#pragma unroll 1  // stores keep the next turn's loads from moving up: unrolling would only cost registers
  for (int i = threadIdx.x; i < num_groups; i += kChunkThreads) {
    [[maybe_unused]] Group<float, kSize> state[kRoom] = {read_once(states[kStates] + i)...};
    Group<G, kSize> grad = read_once(g + i);
    Group<float, kSize> numbers = read_numbers(w + i, master + i, has_master);
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      numbers.value[e] = updated_weight(step, numbers.value[e], __fmul_rn(to_float(grad.value[e]), factor),
                                        state[kStates].value[e]...);
      grad.value[e] = from_float<G>(0);
    }
    (write_once(states[kStates] + i, state[kStates]), ...);
    write_numbers(w + i, master + i, has_master, numbers);
    if (!keep_gradients) write_once(g + i, grad);
  }
}

template <typename Rule, typename W, typename G>
__global__ void __launch_bounds__(kChunkThreads, 5)
    update_kernel(const __grid_constant__ TensorList<UpdateItem> list, const OptimizerStep<Rule>* scalars,
                  bool keep_gradients) {
  const Chunk chunk = chunk_of_block(list);
  const UpdateItem& item = list.items[chunk.tensor];
  OptimizerStep<Rule> step = scalars[item.rate];
  const int num_groups = item.aligned ? chunk.elems / kUpdateGroup : 0, done = num_groups * kUpdateGroup;
  if (step.skip) {
    if (keep_gradients) return;
    G* g = static_cast<G*>(item.g) + chunk.begin;
    zero_groups<kUpdateGroup>(g, num_groups);
    zero_groups<1>(g + done, chunk.elems - done);
    return;
  }
  if (!item.decayed) {
    step.decay = 0;
    step.keep = 1;
  }
  update_groups<kUpdateGroup, W, G>(item, chunk.begin, num_groups, step, keep_gradients, States<Rule>());
  update_groups<1, W, G>(item, chunk.begin + done, chunk.elems - done, step, keep_gradients, States<Rule>());
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

constexpr int kWarp = 32;
constexpr int kLaneElems = static_cast<int>(kStateBlock) / kWarp;

// The states of a warp's block, rounded into their codes.
template <int kState, bool kSquare>
__device__ __forceinline__ void write_states(const PackedItem& packed, const float (&state)[kLaneElems],
                                             int64_t begin, int lane, uint64_t key) {
  auto* narrow = static_cast<uint16_t*>(packed.codes[kState]);
  auto* codes = static_cast<uint8_t*>(packed.codes[kState]);
  const bool scaled = packed.scales[kState] != nullptr;
  float largest = 0;
#pragma unroll
  for (int j = 0; j < kLaneElems; ++j) {
    if (begin + j * kWarp + lane < packed.elems) largest = fmaxf(largest, fabsf(kept_of(state[j], kSquare)));
  }
  const float scale = scale_of(warp_max(largest));
#pragma unroll
  for (int j = 0; j < kLaneElems; ++j) {
    const int64_t i = begin + j * kWarp + lane;
    if (i >= packed.elems) continue;
    const uint32_t random = rounding_bits(key, packed.key + static_cast<uint64_t>(i));
    if (scaled) {
      codes[i] = encode_state(kept_of(state[j], kSquare), scale, kSquare, random);
    } else {
      narrow[i] = round_to_bf16(state[j], random);
    }
  }
  if (scaled && lane == 0) packed.scales[kState][begin / kStateBlock] = scale;
}

template <int kState, bool kSquare>
__device__ __forceinline__ float read_state(const PackedItem& packed, int64_t i) {
  if (packed.scales[kState] == nullptr)
    return from_bf16(static_cast<const uint16_t*>(packed.codes[kState])[i]);
  return decode_state(static_cast<const uint8_t*>(packed.codes[kState])[i],
                      packed.scales[kState][i / kStateBlock], kSquare);
}

// A warp updates a block of states at a time.
template <typename Rule, typename W, typename G, size_t... kStates>
__device__ __forceinline__ void update_packed(const PackedItem& packed, const Chunk& chunk,
                                              const OptimizerStep<Rule>& step, int64_t count,
                                              bool keep_gradients, std::index_sequence<kStates...>) {
  const UpdateItem& item = packed.item;
  const int lane = threadIdx.x % kWarp;
  const bool has_master = item.master != nullptr;
  for (int at = threadIdx.x / kWarp * static_cast<int>(kStateBlock); at < chunk.elems;
       at += kChunkThreads / kWarp * static_cast<int>(kStateBlock)) {
    const int64_t begin = chunk.begin + at;
    float states[sizeof...(kStates)][kLaneElems];
#pragma unroll
    for (int j = 0; j < kLaneElems; ++j) {
      const int64_t i = begin + j * kWarp + lane;
      if (i >= packed.elems) continue;
      ((states[kStates][j] = read_state<kStates, Rule::kStates[kStates].square>(packed, i)), ...);
      auto* w = groups_of<1>(static_cast<W*>(item.w) + i);
      G* g = static_cast<G*>(item.g) + i;
      auto* master = groups_of<1>(static_cast<Master<W>*>(item.master) + i);
      Group<float, 1> number = read_numbers(w, master, has_master);
      number.value[0] = updated_weight(step, number.value[0], __fmul_rn(to_float(*g), step.grad_factor),
                                       states[kStates][j]...);
      write_numbers(w, master, has_master, number);
      if (!keep_gradients) *g = from_float<G>(0);
    }
    (write_states<kStates, Rule::kStates[kStates].square>(packed, states[kStates], begin, lane,
                                                          rounding_key(count, kStates)),
     ...);
  }
}

template <typename Rule, typename W, typename G>
__global__ void __launch_bounds__(kChunkThreads)
    packed_update_kernel(const __grid_constant__ PackedList list, const OptimizerStep<Rule>* scalars,
                         const float* hyper, bool keep_gradients) {
  const Chunk chunk = chunk_of_block(list);
  const PackedItem& packed = list.items[chunk.tensor];
  OptimizerStep<Rule> step = scalars[packed.item.rate];
  if (step.skip) {
    if (!keep_gradients) zero_groups<1>(static_cast<G*>(packed.item.g) + chunk.begin, chunk.elems);
    return;
  }
  if (!packed.item.decayed) {
    step.decay = 0;
    step.keep = 1;
  }
  update_packed<Rule, W, G>(packed, chunk, step, static_cast<int64_t>(hyper[kHyperStep]), keep_gradients,
                            States<Rule>());
}
static_assert(kChunkElems % kStateBlock == 0);

template <typename Rule>
size_t workspace(const CallSignature& call, int) {
  return read_rates(*call.attrs).size() * sizeof(OptimizerStep<Rule>);
}

bool is_aligned_for_groups(const TensorArg& tensor) {
  return is_aligned(tensor.data, static_cast<size_t>(kUpdateGroup * dtype_bytes(tensor.type.dtype)));
}

UpdateItem update_item(const ParamGroup& group) {
  UpdateItem item{.w = group.w->data,
                  .g = group.g->data,
                  .states = {},
                  .master = group.master != nullptr ? group.master->data : nullptr,
                  .elems = group.w->elems(),
                  .rate = static_cast<int32_t>(group.rate),
                  .decayed = group.decayed,
                  .aligned = is_aligned_for_groups(*group.w) && is_aligned_for_groups(*group.g)};
  if (group.master != nullptr) item.aligned &= is_aligned_for_groups(*group.master);
  for (size_t s = 0; s < group.states.size(); ++s) {
    item.states[s] = group.states[s].as<float>();
    item.aligned &= is_aligned_for_groups(group.states[s]);
  }
  return item;
}

bool is_packed(const ParamGroup& group) {
  return !group.states.empty() && group.states[0].type.dtype != DType::F32;
}

PackedItem packed_item(const ParamGroup& group) {
  PackedItem packed{
      .item = update_item(group), .codes = {}, .scales = {}, .key = group.key, .elems = group.w->elems()};
  for (size_t s = 0; s < group.states.size(); ++s) {
    packed.codes[s] = group.states[s].data;
    packed.scales[s] = group.scales.empty() ? nullptr : group.scales[s].as<float>();
  }
  return packed;
}

template <typename Rule, typename W, typename G>
void update_all_packed(std::span<const ParamGroup> groups, const KernelArgs& args, cudaStream_t queue) {
  if constexpr (Rule::kEntry.rule_states() > 0) {
    const auto* step = reinterpret_cast<const OptimizerStep<Rule>*>(args.workspace.data());
    const bool keep_gradients = args.attrs.integer_or("keep", 0) != 0;
    PackedList list;
    const auto launch = [&] {
      if (list.num_blocks() > 0) {
        packed_update_kernel<Rule, W, G>
            <<<static_cast<unsigned>(list.num_blocks()), kChunkThreads, 0, queue>>>(
                list, step, args.in[0].as<const float>(), keep_gradients);
        check_launch("optimizer");
      }
      list.size = 0;
    };
    for (const ParamGroup& group : groups) {
      list.add(packed_item(group));
      if (list.full()) launch();
    }
    launch();
  }
}

// Updates the parameters whose weights are W and whose gradients are G.
template <typename Rule, typename W, typename G>
void update_all(Op op, DType w, DType g, const KernelArgs& args, cudaStream_t queue) {
  const auto* step = reinterpret_cast<const OptimizerStep<Rule>*>(args.workspace.data());
  const bool keep_gradients = args.attrs.integer_or("keep", 0) != 0;
  TensorList<UpdateItem> list;
  const auto launch = [&] {
    if (list.num_blocks() > 0) {
      update_kernel<Rule, W, G>
          <<<static_cast<unsigned>(list.num_blocks()), kChunkThreads, 0, queue>>>(list, step, keep_gradients);
      check_launch("optimizer");
    }
    list.size = 0;
  };
  std::vector<ParamGroup> packed;
  for (const ParamGroup& group : read_param_groups(op, args)) {
    if (group.w->type.dtype != w || group.g->type.dtype != g) continue;
    if (is_packed(group)) {
      packed.push_back(group);
      continue;
    }
    list.add(update_item(group));
    if (list.full()) launch();
  }
  launch();
  update_all_packed<Rule, W, G>(packed, args, queue);
}

template <Op kOp, typename Rule>
void run_update(const KernelArgs& args, Stream& stream) {
  const cudaStream_t queue = queue_of(stream);
  auto* step = reinterpret_cast<OptimizerStep<Rule>*>(args.workspace.data());
  for (const GroupFactors& factors : read_rates(args.attrs)) {
    optimizer_step_kernel<<<1, 1, 0, queue>>>(args.in[0].as<const float>(), args.in[1].as<const double>(),
                                              factors, step++);
    check_launch("optimizer_step");
  }
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for_storage(dtype, [&]<typename W>(W*) {
      update_all<Rule, W, float>(kOp, dtype, DType::F32, args, queue);
      if constexpr (sizeof(W) < sizeof(float)) update_all<Rule, W, W>(kOp, dtype, dtype, args, queue);
    });
  }
}

}  // namespace

void add_update_kernels(KernelRegistry& registry) {
#define TANDEM_KERNEL(type, name) \
  registry.add({"cuda." #name, Op::type, supports_update, workspace<type>, run_update<Op::type, type>});
  TANDEM_OPTIMIZERS(TANDEM_KERNEL)
#undef TANDEM_KERNEL
}

void add_optimizer_kernels(KernelRegistry& registry) {
  add_square_sums_kernels(registry);
  add_update_kernels(registry);
  add_loss_scaler_kernels(registry);
  add_matrix_update_kernels(registry);
  add_ema_kernels(registry);
}

}  // namespace tandem::cuda
