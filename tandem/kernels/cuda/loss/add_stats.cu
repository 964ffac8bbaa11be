// Statistics of a step: added up over its passes, and means of what a model measures, in double.
#include <algorithm>

#include "tandem/kernels/cuda/block_sum.cuh"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/device/queue_of.h"
#include "tandem/kernels/cuda/loss/loss_kernels.h"

namespace tandem::cuda {
namespace {

__global__ void add_stats_kernel(double* acc, const double* stats, int64_t count) {
  for (int64_t i = 0; i < count; ++i) acc[i] += stats[i];
}

void run(const KernelArgs& args, Stream& stream) {
  add_stats_kernel<<<1, 1, 0, queue_of(stream)>>>(args.out[0].as<double>() + args.attrs.integer_or("at", 0),
                                                  args.in[1].as<const double>(), args.in[1].elems());
  check_launch("add_stats");
}

bool always(const CallSignature&) { return true; }  // the op has one type

constexpr int kThreads = 256;
constexpr int64_t kBlockElems = 16384;
constexpr int64_t kMostBlocks = 1024;

int64_t num_sums(int64_t elems) { return std::min(kMostBlocks, (elems + kBlockElems - 1) / kBlockElems); }

// Blocks take turns with pieces of kBlockElems, so that sums depend on the size only.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    measure_kernel(const T* x, int64_t elems, bool squares, double* sums) {
  double sum = 0;
  for (int64_t begin = int64_t{blockIdx.x} * kBlockElems; begin < elems;
       begin += int64_t{gridDim.x} * kBlockElems) {
    const int64_t end = begin + kBlockElems < elems ? begin + kBlockElems : elems;
    for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      const double value = to_float(x[i]);
      sum += squares ? value * value : value;
    }
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    mean_kernel(const double* sums, int64_t count, int64_t elems, double* mean) {
  const double sum = block_sum_of<kThreads>(count, [&](int64_t i) { return sums[i]; });
  if (threadIdx.x == 0) *mean = sum / static_cast<double>(elems);
}

size_t measure_workspace(const CallSignature& call, int) {
  return static_cast<size_t>(num_sums(call.in[0].shape.elems())) * sizeof(double);
}

void run_measure(const KernelArgs& args, Stream& stream) {
  const TensorArg& x = args.in[0];
  auto* sums = reinterpret_cast<double*>(args.workspace.data());
  const int64_t blocks = num_sums(x.elems());
  for_storage(x.type.dtype, [&]<typename T>(T*) {
    measure_kernel<T><<<static_cast<unsigned>(blocks), kThreads, 0, queue_of(stream)>>>(
        x.as<const T>(), x.elems(), args.attrs.integer("squares") != 0, sums);
  });
  check_launch("measure");
  mean_kernel<<<1, kThreads, 0, queue_of(stream)>>>(sums, blocks, x.elems(), args.out[0].as<double>());
  check_launch("measure");
}

bool supports_measure(const CallSignature& call) { return is_storage(call.in[0].dtype); }

}  // namespace

void add_stats_kernels(KernelRegistry& registry) {
  registry.add({"cuda.add_stats", Op::AddStats, always, nullptr, run});
  registry.add({"cuda.measure", Op::Measure, supports_measure, measure_workspace, run_measure});
}

}  // namespace tandem::cuda
