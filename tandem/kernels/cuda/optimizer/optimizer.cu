// The kernels of all optimizers, each over all parameters at once. An update is bound by memory: weight,
// gradient and states are read once and written once, and the gradient's zeroing rides along. One thread
// works out the step's scalars (tandem/optimizers/step.h) ahead of all others. rules.cuh has the rules.
#include <utility>
#include <vector>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/optimizer/optimizer_kernels.h"
#include "tandem/kernels/cuda/optimizer/update_item.cuh"
#include "tandem/kernels/cuda/register.h"
#include "tandem/runtime/storage.h"

namespace tandem::cuda {
namespace {

template <typename Rule>
__global__ void optimizer_step_kernel(const float* hyper, const double* norm, GroupFactors factors,
                                      OptimizerStep<Rule>* step) {
  *step = optimizer_step<Rule>(hyper, norm, factors);
}

template <int kSize, typename G>
__device__ __forceinline__ void zero_groups(G* g, int num_groups) {
  Group<G, kSize> zeros;
#pragma unroll
  for (int e = 0; e < kSize; ++e) zeros.value[e] = from_float<G>(0);
  for (int i = threadIdx.x; i < num_groups; i += kChunkThreads) write_once(groups_of<kSize>(g) + i, zeros);
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
  auto* master = groups_of<kSize>(static_cast<Master<Rule, W>*>(item.master) + at);
  const bool has_master = item.master != nullptr;
#pragma unroll 1  // stores keep the next turn's loads from moving up: unrolling would only cost registers
  for (int i = threadIdx.x; i < num_groups; i += kChunkThreads) {
    [[maybe_unused]] Group<float, kSize> state[kRoom] = {read_once(states[kStates] + i)...};
    Group<G, kSize> grad = read_once(g + i);
    Group<float, kSize> numbers = read_numbers(w + i, master + i, has_master);
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      numbers.value[e] = updated_weight(step, numbers.value[e], read_gradient(step, to_float(grad.value[e])),
                                        state[kStates].value[e]...);
      grad.value[e] = from_float<G>(0);
    }
    (write_once(states[kStates] + i, state[kStates]), ...);
    if constexpr (Rule::kEntry.averages) {
      Group<W, kSize> shown;
#pragma unroll
      for (int e = 0; e < kSize; ++e)
        shown.value[e] = rounded_alone<W>(shown_weight(step, numbers.value[e], state[0].value[e]));
      write_once(master + i, numbers);
      *(w + i) = shown;
    } else {
      write_numbers(w + i, master + i, has_master, numbers);
    }
    if (!keep_gradients) write_once(g + i, grad);
  }
}

template <typename Rule, typename W, typename G>
__global__ void __launch_bounds__(kChunkThreads, 5)
    update_kernel(const __grid_constant__ TensorList<UpdateItem> list, const OptimizerStep<Rule>* scalars,
                  const double* sums, bool keep_gradients) {
  const Chunk chunk = chunk_of_block(list);
  const UpdateItem& item = list.items[chunk.tensor];
  const OptimizerStep<Rule> step = step_of(item, scalars[item.rate], sums);
  const int num_groups = item.aligned ? chunk.elems / kUpdateGroup : 0, done = num_groups * kUpdateGroup;
  if (step.skip) {
    if (keep_gradients) return;
    G* g = static_cast<G*>(item.g) + chunk.begin;
    zero_groups<kUpdateGroup>(g, num_groups);
    zero_groups<1>(g + done, chunk.elems - done);
    return;
  }
  update_groups<kUpdateGroup, W, G>(item, chunk.begin, num_groups, step, keep_gradients, States<Rule>());
  update_groups<1, W, G>(item, chunk.begin + done, chunk.elems - done, step, keep_gradients, States<Rule>());
}

constexpr int kWarp = 32;
constexpr int kLaneElems = static_cast<int>(kStateBlock) / kWarp;

// The states of a warp's block, rounded into their codes. Of a mean of squares, `roots` are what was kept;
// shares read them.
template <Kept kKept>
__device__ __forceinline__ void write_states(const PackedItem& packed, int which,
                                             const float (&state)[kLaneElems], float (&roots)[kLaneElems],
                                             int64_t begin, int lane, uint64_t key) {
  auto* narrow = static_cast<uint16_t*>(packed.codes[which]);
  auto* codes = static_cast<uint8_t*>(packed.codes[which]);
  const bool scaled = packed.scales[which] != nullptr;
  float kept[kLaneElems];
  BlockRange range;
#pragma unroll
  for (int j = 0; j < kLaneElems; ++j) {
    kept[j] = scaled ? kept_of(kKept, state[j], roots[j]) : 0;
    if (begin + j * kWarp + lane < packed.elems) range.add(kept[j]);
  }
  range.largest = warp_max(range.largest);
  range.smallest = -warp_max(-range.smallest);
  const float scale = scale_of(kKept, range);
#pragma unroll
  for (int j = 0; j < kLaneElems; ++j) {
    const int64_t i = begin + j * kWarp + lane;
    if (i >= packed.elems) continue;
    const uint32_t random = rounding_bits(key, packed.key + static_cast<uint64_t>(i));
    if (scaled) {
      codes[i] = encode_state(kKept, kept[j], scale, random);
      if constexpr (kKept == Kept::Root) roots[j] = decode_state(kKept, codes[i], scale);
    } else {
      narrow[i] = round_to_bf16(state[j], random);
    }
  }
  if (scaled && lane == 0) packed.scales[which][begin / kStateBlock] = scale;
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
    float states[sizeof...(kStates)][kLaneElems] = {};
#pragma unroll
    for (int j = 0; j < kLaneElems; ++j) {
      const int64_t i = begin + j * kWarp + lane;
      if (i >= packed.elems) continue;
      ((states[kStates][j] = read_state<Rule, static_cast<int>(kStates)>(packed, i)), ...);
      auto* w = groups_of<1>(static_cast<W*>(item.w) + i);
      G* g = static_cast<G*>(item.g) + i;
      auto* master = groups_of<1>(static_cast<Master<Rule, W>*>(item.master) + i);
      Group<float, 1> number = read_numbers(w, master, has_master);
      number.value[0] =
          updated_weight(step, number.value[0], read_gradient(step, to_float(*g)), states[kStates][j]...);
      write_numbers(w, master, has_master, number);
      if (!keep_gradients) *g = from_float<G>(0);
    }
    float roots[kLaneElems] = {};
    const auto write = [&]<size_t kState>() {
      write_states<Rule::kStates[kState].kept>(packed, kState, states[kState], roots, begin, lane,
                                               rounding_key(count, kState));
    };
    constexpr int kRoot = kRootState<Rule>;
    if constexpr (kRoot >= 0) write.template operator()<static_cast<size_t>(kRoot)>();
    ((kStates == static_cast<size_t>(kRoot) ? void() : write.template operator()<kStates>()), ...);
  }
}

template <typename Rule, typename W, typename G>
__global__ void __launch_bounds__(kChunkThreads)
    packed_update_kernel(const __grid_constant__ PackedList list, const OptimizerStep<Rule>* scalars,
                         const float* hyper, const double* sums, bool keep_gradients) {
  const Chunk chunk = chunk_of_block(list);
  const PackedItem& packed = list.items[chunk.tensor];
  const OptimizerStep<Rule> step = step_of(packed.item, scalars[packed.item.rate], sums);
  if (step.skip) {
    if (!keep_gradients) zero_groups<1>(static_cast<G*>(packed.item.g) + chunk.begin, chunk.elems);
    return;
  }
  update_packed<Rule, W, G>(packed, chunk, step, static_cast<int64_t>(hyper[kHyperStep]), keep_gradients,
                            States<Rule>());
}
static_assert(kChunkElems % kStateBlock == 0);

template <typename Rule>
size_t workspace(const CallSignature& call, int) {
  return read_rates(*call.attrs).size() * sizeof(OptimizerStep<Rule>);
}

// Of squares of whole parameters, where the rule reads their norms.
template <typename Rule>
const double* sums_in(const KernelArgs& args) {
  return Rule::kEntry.granularity == Granularity::Tensor ? args.in[2].as<const double>() : nullptr;
}

template <typename Rule, typename W, typename G>
void update_all_packed(std::span<const ParamGroup> groups, const KernelArgs& args, cudaStream_t queue) {
  if constexpr (Rule::kEntry.rule_states() > 0 && !Rule::kEntry.averages) {
    const auto* step = reinterpret_cast<const OptimizerStep<Rule>*>(args.workspace.data());
    const bool keep_gradients = args.attrs.integer_or("keep", 0) != 0;
    PackedList list;
    const auto launch = [&] {
      if (list.num_blocks() > 0) {
        packed_update_kernel<Rule, W, G>
            <<<static_cast<unsigned>(list.num_blocks()), kChunkThreads, 0, queue>>>(
                list, step, args.in[0].as<const float>(), sums_in<Rule>(args), keep_gradients);
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
      update_kernel<Rule, W, G><<<static_cast<unsigned>(list.num_blocks()), kChunkThreads, 0, queue>>>(
          list, step, sums_in<Rule>(args), keep_gradients);
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

template <typename W>
__global__ void __launch_bounds__(kChunkThreads)
    blend_kernel(const float* share, W* w, const float* x, const float* lead, int64_t elems) {
  const int64_t i = int64_t{blockIdx.x} * kChunkThreads + threadIdx.x;
  if (i < elems) w[i] = rounded_alone<W>(__fadd_rn(x[i], __fmul_rn(*share, lead[i])));
}

bool supports_blend(const CallSignature& call) {
  return is_storage(call.in[1].dtype) && call.in[2].dtype == DType::F32 && call.in[3].dtype == DType::F32;
}

void run_blend(const KernelArgs& args, Stream& stream) {
  const int64_t elems = args.out[0].elems();
  if (elems == 0) return;
  for_storage(args.out[0].type.dtype, [&]<typename W>(W*) {
    blend_kernel<<<static_cast<unsigned>((elems + kChunkThreads - 1) / kChunkThreads), kChunkThreads, 0,
                   queue_of(stream)>>>(args.in[0].as<const float>(), args.out[0].as<W>(),
                                       args.in[2].as<const float>(), args.in[3].as<const float>(), elems);
  });
  check_launch("blend_weights");
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

void add_update_kernels(KernelRegistry& kernels) {
#define TANDEM_KERNEL(type, name) \
  kernels.add({"cuda." #name, Op::type, supports_update, workspace<type>, run_update<Op::type, type>});
  TANDEM_OPTIMIZERS(TANDEM_KERNEL)
#undef TANDEM_KERNEL
  kernels.add({"cuda.blend_weights", Op::BlendWeights, supports_blend, nullptr, run_blend});
}

void add_optimizer_kernels(KernelRegistry& registry) {
  add_square_sums_kernels(registry);
  add_update_kernels(registry);
  add_parameter_sums_kernels(registry);
  add_loss_scaler_kernels(registry);
  add_matrix_update_kernels(registry);
  add_factored_update_kernels(registry);
  add_ema_kernels(registry);
}

}  // namespace tandem::cuda
