// y = x W^T + bias for one row x: a warp takes a row of W and goes over it with 16-byte loads, several of
// them under way; x is read from the caches. Each sum has a fixed order.
#include "tandem/kernels/cuda/gemm/gemv.h"

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/groups.cuh"

namespace tandem::cuda {
namespace {

constexpr int kWarps = 4;  // rows of a block
constexpr int kAhead = 4;  // loads of a lane under way

template <typename T>
__device__ __forceinline__ float dot_pack(const Pack<T>& w, const Pack<T>& x, float sum) {
  constexpr int kSize = Pack<T>::kSize;
  float a[kSize], b[kSize];
  to_floats(w.value, a);
  to_floats(x.value, b);
#pragma unroll
  for (int i = 0; i < kSize; ++i) sum = fmaf(a[i], b[i], sum);
  return sum;
}

// kWhole: rows are whole packs, at addresses that allow it.
template <typename T, typename Out, bool kWhole>
__global__ void __launch_bounds__(kWarps * 32)
    gemv(const T* __restrict__ x, const T* __restrict__ weights, const T* __restrict__ bias, int n, int k,
         Out* __restrict__ y) {
  const int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (row >= n) return;
  const T* w = weights + static_cast<int64_t>(row) * k;
  float sums[kAhead] = {};
  if constexpr (kWhole) {
    constexpr int kSize = Pack<T>::kSize, kStep = 32 * kSize;
    int i = lane * kSize;
    for (; i + (kAhead - 1) * kStep < k; i += kAhead * kStep) {
      Pack<T> packs[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) packs[a] = load_pack_once(w + i + a * kStep);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) sums[a] = dot_pack(packs[a], load_pack(x + i + a * kStep), sums[a]);
    }
    for (; i < k; i += kStep) sums[0] = dot_pack(load_pack_once(w + i), load_pack(x + i), sums[0]);
  } else {
    for (int i = lane; i < k; i += 32) sums[0] = fmaf(to_float(w[i]), to_float(x[i]), sums[0]);
  }
  const float sum = warp_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  if (lane == 0) y[row] = from_float<Out>(bias == nullptr ? sum : sum + to_float(bias[row]));
}

template <typename T, typename Out>
void launch(const KernelArgs& args, cudaStream_t queue) {
  const TensorArg &x = args.in[0], &w = args.in[1];
  const int n = static_cast<int>(w.type.shape.rows()), k = static_cast<int>(w.type.shape.last());
  const T* bias = args.in.size() > 2 ? args.in[2].as<T>() : nullptr;
  const auto blocks = static_cast<unsigned>((n + kWarps - 1) / kWarps);
  if (k % Pack<T>::kSize == 0 && is_aligned(x.data, 16) && is_aligned(w.data, 16)) {
    gemv<T, Out, true>
        <<<blocks, kWarps * 32, 0, queue>>>(x.as<T>(), w.as<T>(), bias, n, k, args.out[0].as<Out>());
  } else {
    gemv<T, Out, false>
        <<<blocks, kWarps * 32, 0, queue>>>(x.as<T>(), w.as<T>(), bias, n, k, args.out[0].as<Out>());
  }
  check_launch("gemv");
}

void run(const KernelArgs& args, Stream& stream) {
  for_storage(args.in[0].type.dtype, [&]<typename T>(T*) {
    if (args.out[0].type.dtype == DType::F32) {
      launch<T, float>(args, queue_of(stream));
    } else {
      launch<T, T>(args, queue_of(stream));
    }
  });
}

bool supports(const CallSignature& call) {
  const Attrs& attrs = *call.attrs;
  const DType storage = call.in[0].dtype;
  return attrs.integer_or("few", 0) != 0 && attrs.integer("trans_a") == 0 && attrs.integer("trans_b") != 0 &&
         call.in[0].shape.rows() == 1 && is_storage(storage) && call.in[1].dtype == storage &&
         (call.in.size() < 3 || call.in[2].dtype == storage) &&
         (call.out[0].dtype == storage || call.out[0].dtype == DType::F32) && call.in[1].shape.elems() > 0 &&
         call.in[1].shape.rows() <= INT32_MAX;
}

}  // namespace

void add_gemv_kernel(KernelRegistry& registry) {
  registry.add({"cuda.gemv", Op::Matmul, supports, nullptr, run});
}

}  // namespace tandem::cuda
