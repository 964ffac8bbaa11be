// What optimizers read of whole parameters: two sums of squares for each, of the numbers that are trained and
// of what the rule says of them (rules.cuh). Sums are made in double, chunk by chunk, then parameter by
// parameter, in an order that depends on the pieces' sizes only.
#include <algorithm>
#include <numeric>
#include <vector>

#include "tandem/kernels/cuda/block_sum.cuh"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/optimizer/optimizer_kernels.h"
#include "tandem/kernels/cuda/optimizer/update_item.cuh"

namespace tandem::cuda {
namespace {

// `first` is where the sums of its chunks go.
struct MeasuredItem {
  PackedItem packed;
  GroupFactors factors;
  int32_t first;
  bool is_packed;
  int64_t elems;  // as packed.elems, for TensorList
};
using MeasuredList = TensorList<MeasuredItem, 224>;
static_assert(sizeof(MeasuredList) <= 32000);

template <typename Rule, size_t... kStates>
__device__ __forceinline__ float measured_at(const MeasuredItem& item, int64_t i,
                                             const OptimizerStep<Rule>& step, float w, float g,
                                             std::index_sequence<kStates...>) {
  [[maybe_unused]] const auto state = [&]<size_t kState>() {
    return item.is_packed ? read_state<Rule, static_cast<int>(kState)>(item.packed, i)
                          : item.packed.item.states[kState][i];
  };
  return measured(step, w, g, state.template operator()<kStates>()...);
}

// A block sums a chunk; the two sums lie side by side.
template <typename Rule, typename W, typename G>
__global__ void __launch_bounds__(kChunkThreads)
    chunk_sums_kernel(const __grid_constant__ MeasuredList list, const float* hyper, const double* norm,
                      double* partials) {
  __shared__ OptimizerStep<Rule> shared_step;
  const Chunk chunk = chunk_of_block(list);
  const MeasuredItem& item = list.items[chunk.tensor];
  const UpdateItem& tensors = item.packed.item;
  if (threadIdx.x == 0) {
    shared_step = optimizer_step<Rule>(hyper, norm, item.factors);
    if (!tensors.decayed) shared_step.decay = 0;
  }
  __syncthreads();
  const OptimizerStep<Rule> step = shared_step;
  double weights = 0, others = 0;
  for (int at = threadIdx.x; at < chunk.elems; at += kChunkThreads) {
    const int64_t i = chunk.begin + at;
    const float w = read_numbers(groups_of<1>(static_cast<W*>(tensors.w) + i),
                                 groups_of<1>(static_cast<Master<Rule, W>*>(tensors.master) + i),
                                 tensors.master != nullptr)
                        .value[0];
    const float g = read_gradient(step, to_float(static_cast<const G*>(tensors.g)[i]));
    const double other = measured_at(item, i, step, w, g, States<Rule>());
    weights = fma(static_cast<double>(w), static_cast<double>(w), weights);
    others = fma(other, other, others);
  }
  weights = block_sum<kChunkThreads>(weights);
  others = block_sum<kChunkThreads>(others);
  if (threadIdx.x == 0) {
    partials[2 * (item.first + chunk.index)] = weights;
    partials[2 * (item.first + chunk.index) + 1] = others;
  }
}

// Chunks [begin, end) are those of a slot. Slots come in their order, each once.
struct SlotList {
  static constexpr int kCapacity = 2048;

  int size = 0;
  int32_t slots[kCapacity];
  int32_t begins[kCapacity + 1];
};

__global__ void __launch_bounds__(kChunkThreads)
    slot_sums_kernel(const __grid_constant__ SlotList list, const double* partials, double* sums) {
  const auto at = static_cast<int>(blockIdx.x);
  const double* begin = partials + 2 * list.begins[at];
  const int64_t count = list.begins[at + 1] - list.begins[at];
  for (int which = 0; which < 2; ++which) {
    const double sum = block_sum_of<kChunkThreads>(count, [&](int64_t i) { return begin[2 * i + which]; });
    if (threadIdx.x == 0) sums[2 * list.slots[at] + which] = sum;
  }
}

// Sums the chunks of the parameters whose weights are W and whose gradients are G.
template <typename Rule, typename W, typename G>
void sum_chunks(std::span<const ParamGroup> groups, std::span<const int32_t> firsts, DType w, DType g,
                const KernelArgs& args, cudaStream_t queue) {
  auto* partials = reinterpret_cast<double*>(args.workspace.data());
  const std::vector<GroupFactors> rates = read_rates(args.attrs);
  MeasuredList list;
  const auto launch = [&] {
    if (list.num_blocks() > 0) {
      chunk_sums_kernel<Rule, W, G><<<static_cast<unsigned>(list.num_blocks()), kChunkThreads, 0, queue>>>(
          list, args.in[0].as<const float>(), args.in[1].as<const double>(), partials);
      check_launch("parameter_sums");
    }
    list.size = 0;
  };
  for (size_t i = 0; i < groups.size(); ++i) {
    const ParamGroup& group = groups[i];
    if (group.w->type.dtype != w || group.g->type.dtype != g) continue;
    list.add({.packed = packed_item(group),
              .factors = rates.at(group.rate),
              .first = firsts[i],
              .is_packed = is_packed(group),
              .elems = group.w->elems()});
    if (list.full()) launch();
  }
  launch();
}

size_t workspace(const CallSignature& call, int) {
  const auto size = static_cast<size_t>(param_group_size(measured_op(call.op), *call.attrs));
  int64_t chunks = 0;
  for (size_t i = 2; i < call.in.size(); i += size) chunks += num_chunks(call.in[i].shape.elems());
  return static_cast<size_t>(2 * chunks) * sizeof(double);
}

void sum_slots(std::span<const ParamGroup> groups, std::span<const int32_t> firsts, int32_t total,
               const KernelArgs& args, cudaStream_t queue) {
  auto* sums = args.out[0].as<double>();
  check(cudaMemsetAsync(sums, 0, static_cast<size_t>(args.out[0].elems()) * sizeof(double), queue),
        "parameter_sums");
  SlotList list;
  const auto launch = [&](int32_t end) {
    if (list.size == 0) return;
    list.begins[list.size] = end;
    slot_sums_kernel<<<static_cast<unsigned>(list.size), kChunkThreads, 0, queue>>>(
        list, reinterpret_cast<const double*>(args.workspace.data()), sums);
    check_launch("parameter_sums");
    list.size = 0;
  };
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i > 0 && groups[i].slot == groups[i - 1].slot) continue;
    if (list.size == SlotList::kCapacity) launch(firsts[i]);
    list.slots[list.size] = static_cast<int32_t>(groups[i].slot);
    list.begins[list.size++] = firsts[i];
  }
  launch(total);
}

template <Op kOp, typename Rule>
void run_sums(const KernelArgs& args, Stream& stream) {
  const cudaStream_t queue = queue_of(stream);
  std::vector<ParamGroup> groups = read_measured_groups(kOp, args);
  std::stable_sort(groups.begin(), groups.end(),
                   [](const ParamGroup& a, const ParamGroup& b) { return a.slot < b.slot; });
  std::vector<int32_t> firsts;
  int64_t total = 0;
  for (const ParamGroup& group : groups) {
    firsts.push_back(static_cast<int32_t>(total));
    total += num_chunks(group.w->elems());
    TANDEM_CHECK(total <= INT32_MAX, "{} chunks", total);
  }
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for_storage(dtype, [&]<typename W>(W*) {
      sum_chunks<Rule, W, float>(groups, firsts, dtype, DType::F32, args, queue);
      if constexpr (sizeof(W) < sizeof(float))
        sum_chunks<Rule, W, W>(groups, firsts, dtype, dtype, args, queue);
    });
  }
  sum_slots(groups, firsts, static_cast<int32_t>(total), args, queue);
}

}  // namespace

void add_parameter_sums_kernels(KernelRegistry& kernels) {
#define TANDEM_KERNEL(type, name)                                                         \
  kernels.add({"cuda." #name "_sums", Op::type##Sums, supports_parameter_sums, workspace, \
               run_sums<Op::type, type>});
  TANDEM_TENSOR_OPTIMIZERS(TANDEM_KERNEL)
#undef TANDEM_KERNEL
}

}  // namespace tandem::cuda
