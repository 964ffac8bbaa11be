// The moving average of weights, of their masters where they have some; and both in each other's place.
#include <algorithm>

#include "tandem/base/split_float.h"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/optimizer/optimizer_kernels.h"
#include "tandem/runtime/ema_step.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;

// `low` is null where the numbers are whole, and else has what the bf16 ones lack.
__global__ void __launch_bounds__(kThreads)
    ema_kernel(int64_t elems, double decay, const float* hyper, const double* norm, const float* whole,
               const uint16_t* high, const int16_t* low, float* ema) {
  const EmaStep step = ema_step(decay, hyper, norm);
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < elems;
       i += int64_t{gridDim.x} * kThreads) {
    const float w = low == nullptr ? whole[i] : __uint_as_float(join_bits({high[i], low[i]}));
    ema[i] = next_average(step, ema[i], w);
  }
}

void run(const KernelArgs& args, Stream& stream) {
  const TensorArg& number = args.in[args.in.size() - 1];
  const bool halves = number.type.dtype == DType::I16;
  const int64_t elems = args.out[0].elems();
  const auto blocks = static_cast<unsigned>(std::min(kMaxBlocks, (elems + kThreads - 1) / kThreads));
  if (blocks == 0) return;
  ema_kernel<<<blocks, kThreads, 0, queue_of(stream)>>>(
      elems, args.attrs.real("decay"), args.in[0].as<const float>(), args.in[1].as<const double>(),
      halves ? nullptr : number.as<const float>(), args.in[3].as<const uint16_t>(),
      halves ? number.as<const int16_t>() : nullptr, args.out[0].as<float>());
  check_launch("ema");
}

bool supports(const CallSignature& call) {
  if (call.in[2].dtype != DType::F32) return false;
  if (call.in.size() == 4) return call.in[3].dtype == DType::F32;
  return is_half(call.in[3].dtype) && call.in[4].dtype == master_dtype(call.in[3].dtype);
}

// Weights in fp32, `trained`; or masters, which are that, or the low halves of bf16 weights.
template <typename W>
__global__ void __launch_bounds__(kThreads)
    exchange_kernel(int64_t elems, W* w, float* trained, int16_t* low, float* ema) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < elems;
       i += int64_t{gridDim.x} * kThreads) {
    const float average = ema[i];
    if constexpr (std::is_same_v<W, __nv_bfloat16>) {
      const SplitFloat halves = split_bits(__float_as_uint(average));
      ema[i] = __uint_as_float(join_bits({__bfloat16_as_ushort(w[i]), low[i]}));
      w[i] = __ushort_as_bfloat16(halves.high);
      low[i] = halves.low;
    } else {
      ema[i] = trained[i];
      trained[i] = average;
      if constexpr (!std::is_same_v<W, float>) w[i] = from_float<W>(average);
    }
  }
}

void run_exchange(const KernelArgs& args, Stream& stream) {
  const TensorArg &w = args.out[0], &number = args.out.size() > 2 ? args.out[2] : w;
  const bool halves = number.type.dtype == DType::I16;
  const auto blocks = static_cast<unsigned>(std::min(kMaxBlocks, (w.elems() + kThreads - 1) / kThreads));
  if (blocks == 0) return;
  for_storage(w.type.dtype, [&]<typename W>(W*) {
    exchange_kernel<W><<<blocks, kThreads, 0, queue_of(stream)>>>(
        w.elems(), w.as<W>(), halves ? nullptr : number.as<float>(), halves ? number.as<int16_t>() : nullptr,
        args.out[1].as<float>());
  });
  check_launch("exchange_weights");
}

bool supports_exchange(const CallSignature& call) {
  if (call.in[1].dtype != DType::F32) return false;
  if (call.in.size() == 2) return call.in[0].dtype == DType::F32;
  return is_half(call.in[0].dtype) && call.in[2].dtype == master_dtype(call.in[0].dtype);
}

}  // namespace

void add_ema_kernels(KernelRegistry& registry) {
  registry.add({"cuda.exchange_weights", Op::ExchangeWeights, supports_exchange, nullptr, run_exchange});
  registry.add({"cuda.ema", Op::Ema, supports, nullptr, run});
}

}  // namespace tandem::cuda
