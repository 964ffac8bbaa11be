// AdamW and Sgd over all parameters at once. An update is bound by memory: weight, gradient and moments are
// read once and written once, and the gradient's zeroing rides along. One thread works out the step's scalars
// ahead of all others. All of it is done as tandem/runtime/optimizer_step.h says, to the bits of the CPU's
// kernels: _rn spells out operations that nvcc neither fuses nor approximates.
#include <type_traits>

#include "tandem/base/split_float.h"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/optimizer/optimizer_kernels.h"
#include "tandem/kernels/cuda/optimizer/tensor_list.cuh"
#include "tandem/kernels/cuda/register.h"
#include "tandem/kernels/cuda/streamed_group.cuh"
#include "tandem/runtime/optimizer_args.h"
#include "tandem/runtime/optimizer_step.h"

namespace tandem::cuda {
namespace {

__global__ void optimizer_step_kernel(const float* hyper, const double* norm, OptimizerStep* step) {
  *step = optimizer_step(hyper, norm);
}

// A rule gives the new weight from the old one and the gradient, and updates the moments.
struct AdamWRule {
  static constexpr bool kHasV = true;
  static __device__ __forceinline__ float update(const OptimizerStep& step, float w, float g, float& m,
                                                 float& v) {
    m = __fadd_rn(__fmul_rn(step.beta1, m), __fmul_rn(step.rest1, g));
    v = __fadd_rn(__fmul_rn(step.beta2, v), __fmul_rn(step.rest2, __fmul_rn(g, g)));
    const float root = __fadd_rn(__fmul_rn(__fsqrt_rn(v), step.root_scale), step.eps);
    const float direction = __fdiv_rn(__fmul_rn(step.rate, m), root);
    return __fsub_rn(__fmul_rn(w, step.keep), direction);
  }
};

// Momentum without dampening; decay is added to the gradient.
struct SgdRule {
  static constexpr bool kHasV = false;
  static __device__ __forceinline__ float update(const OptimizerStep& step, float w, float g, float& m,
                                                 float&) {
    const float decayed_g = __fadd_rn(__fmul_rn(step.decay, w), g);
    m = __fadd_rn(__fmul_rn(step.beta1, m), decayed_g);
    return __fsub_rn(w, __fmul_rn(step.lr, m));
  }
};

// A parameter's tensors. v is null for Sgd, master where w itself is updated; beside a bf16 w the master is
// its low half (tandem/base/split_float.h).
struct UpdateItem {
  void* w;
  void* g;
  float* m;
  float* v;
  void* master;
  int64_t elems;
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
template <typename Rule, int kSize, typename W, typename G>
__device__ __forceinline__ void update_groups(const UpdateItem& item, int64_t at, int num_groups,
                                              const OptimizerStep& step, bool keep_gradients) {
  auto* w = groups_of<kSize>(static_cast<W*>(item.w) + at);
  auto* g = groups_of<kSize>(static_cast<G*>(item.g) + at);
  auto* m = groups_of<kSize>(item.m + at);
  auto* v = groups_of<kSize>(item.v + at);
  auto* master = groups_of<kSize>(static_cast<Master<W>*>(item.master) + at);
  const bool has_master = item.master != nullptr;
#pragma unroll 1  // stores keep the next turn's loads from moving up: unrolling would only cost registers
  for (int i = threadIdx.x; i < num_groups; i += kChunkThreads) {
    Group<float, kSize> m_new = read_once(m + i), v_new = {};
    Group<G, kSize> grad = read_once(g + i);
    if constexpr (Rule::kHasV) v_new = read_once(v + i);
    Group<float, kSize> numbers = read_numbers(w + i, master + i, has_master);
#pragma unroll
    for (int e = 0; e < kSize; ++e) {
      numbers.value[e] =
          Rule::update(step, numbers.value[e], __fmul_rn(to_float(grad.value[e]), step.grad_factor),
                       m_new.value[e], v_new.value[e]);
      grad.value[e] = from_float<G>(0);
    }
    write_once(m + i, m_new);
    if constexpr (Rule::kHasV) write_once(v + i, v_new);
    write_numbers(w + i, master + i, has_master, numbers);
    if (!keep_gradients) write_once(g + i, grad);
  }
}

template <typename Rule, typename W, typename G>
__global__ void __launch_bounds__(kChunkThreads, 5)
    update_kernel(const __grid_constant__ TensorList<UpdateItem> list, const OptimizerStep* scalars,
                  bool keep_gradients) {
  const Chunk chunk = chunk_of_block(list);
  const UpdateItem& item = list.items[chunk.tensor];
  OptimizerStep step = *scalars;
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
  update_groups<Rule, kUpdateGroup, W, G>(item, chunk.begin, num_groups, step, keep_gradients);
  update_groups<Rule, 1, W, G>(item, chunk.begin + done, chunk.elems - done, step, keep_gradients);
}

size_t workspace(const CallSignature&, int) { return sizeof(OptimizerStep); }

UpdateItem update_item(const ParamGroup& group) {
  bool aligned = true;
  for (const TensorArg* tensor : {group.w, group.g, group.m, group.v, group.master}) {
    if (tensor != nullptr)
      aligned &=
          is_aligned(tensor->data, static_cast<size_t>(kUpdateGroup * dtype_bytes(tensor->type.dtype)));
  }
  return {.w = group.w->data,
          .g = group.g->data,
          .m = group.m->as<float>(),
          .v = group.v != nullptr ? group.v->as<float>() : nullptr,
          .master = group.master != nullptr ? group.master->data : nullptr,
          .elems = group.w->elems(),
          .decayed = group.decayed,
          .aligned = aligned};
}

// Updates the parameters whose weights are W and whose gradients are G.
template <typename Rule, typename W, typename G>
void update_all(Op op, DType w, DType g, const KernelArgs& args, cudaStream_t queue) {
  const auto* step = reinterpret_cast<const OptimizerStep*>(args.workspace.data());
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
  for (const ParamGroup& group : read_param_groups(op, args)) {
    if (group.w->type.dtype != w || group.g->type.dtype != g) continue;
    list.add(update_item(group));
    if (list.full()) launch();
  }
  launch();
}

template <typename Rule>
void run_update(Op op, const KernelArgs& args, Stream& stream) {
  const cudaStream_t queue = queue_of(stream);
  optimizer_step_kernel<<<1, 1, 0, queue>>>(args.in[0].as<const float>(), args.in[1].as<const double>(),
                                            reinterpret_cast<OptimizerStep*>(args.workspace.data()));
  check_launch("optimizer_step");
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for_storage(dtype, [&]<typename W>(W*) {
      update_all<Rule, W, float>(op, dtype, DType::F32, args, queue);
      if constexpr (sizeof(W) < sizeof(float)) update_all<Rule, W, W>(op, dtype, dtype, args, queue);
    });
  }
}

void run_adamw(const KernelArgs& args, Stream& stream) { run_update<AdamWRule>(Op::AdamW, args, stream); }
void run_sgd(const KernelArgs& args, Stream& stream) { run_update<SgdRule>(Op::Sgd, args, stream); }

}  // namespace

void add_update_kernels(KernelRegistry& registry) {
  registry.add({"cuda.adamw", Op::AdamW, supports_update, workspace, run_adamw});
  registry.add({"cuda.sgd", Op::Sgd, supports_update, workspace, run_sgd});
}

void add_optimizer_kernels(KernelRegistry& registry) {
  add_square_sums_kernels(registry);
  add_update_kernels(registry);
  add_loss_scaler_kernels(registry);
}

}  // namespace tandem::cuda
