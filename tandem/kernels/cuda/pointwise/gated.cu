// SwiGLU, GeGLU and their gradients: rows of gate and up side by side, one group of columns of both a thread.

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/groups.cuh"
#include "tandem/kernels/cuda/pointwise/gelu.cuh"
#include "tandem/kernels/cuda/pointwise/row_kernels.h"
#include "tandem/kernels/cuda/pointwise/swiglu.cuh"

namespace tandem::cuda {
namespace {

struct Silu {
  static __device__ __forceinline__ float of(float gate, float up) { return swiglu_of(gate, up); }
  static __device__ __forceinline__ GatedSlopes slopes(float dy, float gate, float up) {
    return swiglu_slopes(dy, gate, up);
  }
};

struct Gelu {
  static __device__ __forceinline__ float of(float gate, float up) { return gelu(gate) * up; }
  static __device__ __forceinline__ GatedSlopes slopes(float dy, float gate, float up) {
    return {dy * up * gelu_slope(gate), dy * gelu(gate)};
  }
};

template <typename Activation, int kSize, typename T>
__global__ void __launch_bounds__(kRowThreads)
    gated(int64_t rows, int64_t width, const T* __restrict__ gate_up, T* __restrict__ y) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kSize;
  if (row >= rows || column >= width) return;
  const auto gate = load_group<kSize>(gate_up + row * 2 * width + column);
  const auto up = load_group<kSize>(gate_up + row * 2 * width + width + column);
  Group<T, kSize> out;
#pragma unroll
  for (int i = 0; i < kSize; ++i)
    out.value[i] = from_float<T>(Activation::of(to_float(gate.value[i]), to_float(up.value[i])));
  store_group(y + row * width + column, out);
}

// A thread reads all it needs before it writes: dgate_up may be gate_up, and y, which is null unless it is to
// be given again, may be dy.
template <typename Activation, int kSize, typename T>
__global__ void __launch_bounds__(kRowThreads)
    gated_grad(int64_t rows, int64_t width, const T* dy, const T* gate_up, T* dgate_up, T* y) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kSize;
  if (row >= rows || column >= width) return;
  const int64_t at = row * 2 * width + column;
  const auto grad = load_group<kSize>(dy + row * width + column);
  const auto gate = load_group<kSize>(gate_up + at);
  const auto up = load_group<kSize>(gate_up + at + width);
  Group<T, kSize> dgate, dup, again;
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    const float g = to_float(gate.value[i]), u = to_float(up.value[i]);
    const GatedSlopes slopes = Activation::slopes(to_float(grad.value[i]), g, u);
    dgate.value[i] = from_float<T>(slopes.gate);
    dup.value[i] = from_float<T>(slopes.up);
    again.value[i] = from_float<T>(Activation::of(g, u));
  }
  store_group(dgate_up + at, dgate);
  store_group(dgate_up + at + width, dup);
  if (y != nullptr) store_group(y + row * width + column, again);
}

template <typename Activation>
void run_gated(const KernelArgs& args, Stream& stream) {
  const TensorArg& out = args.out[0];
  if (out.elems() == 0) return;
  const int64_t rows = out.type.shape.rows(), width = out.type.shape.last();
  for_storage(out.type.dtype, [&]<typename T>(T*) {
    const T* gate_up = args.in[0].as<T>();
    T* y = out.as<T>();
    if (width % Pack<T>::kSize == 0 && is_aligned(gate_up, 16) && is_aligned(y, 16)) {
      const RowLaunch launch = row_launch(rows, width / Pack<T>::kSize);
      gated<Activation, Pack<T>::kSize>
          <<<launch.grid, launch.block, 0, queue_of(stream)>>>(rows, width, gate_up, y);
    } else {
      const RowLaunch launch = row_launch(rows, width);
      gated<Activation, 1><<<launch.grid, launch.block, 0, queue_of(stream)>>>(rows, width, gate_up, y);
    }
  });
  check_launch("gated");
}

template <typename Activation>
void run_gated_grad(const KernelArgs& args, Stream& stream) {
  if (args.in[0].elems() == 0) return;
  const int64_t rows = args.in[0].type.shape.rows(), width = args.in[0].type.shape.last();
  for_storage(args.out[0].type.dtype, [&]<typename T>(T*) {
    const T* dy = args.in[0].as<T>();
    const T* gate_up = args.in[1].as<T>();
    T* dgate_up = args.out[0].as<T>();
    T* y = args.out.size() > 1 ? args.out[1].as<T>() : nullptr;
    if (width % Pack<T>::kSize == 0 && is_aligned(dy, 16) && is_aligned(gate_up, 16) &&
        is_aligned(dgate_up, 16) && is_aligned(y, 16)) {
      const RowLaunch launch = row_launch(rows, width / Pack<T>::kSize);
      gated_grad<Activation, Pack<T>::kSize>
          <<<launch.grid, launch.block, 0, queue_of(stream)>>>(rows, width, dy, gate_up, dgate_up, y);
    } else {
      const RowLaunch launch = row_launch(rows, width);
      gated_grad<Activation, 1>
          <<<launch.grid, launch.block, 0, queue_of(stream)>>>(rows, width, dy, gate_up, dgate_up, y);
    }
  });
  check_launch("gated_grad");
}

bool supports_gated(const CallSignature& call) {
  return call.in.size() == 1 && is_storage(call.out[0].dtype) && call.in[0].dtype == call.out[0].dtype &&
         call.in[0].shape.last() == 2 * call.out[0].shape.last();
}
bool supports_gated_grad(const CallSignature& call) {
  return call.in.size() == 2 && is_storage(call.out[0].dtype) && call.in[0].dtype == call.out[0].dtype &&
         call.in[1].dtype == call.out[0].dtype && call.in[1].shape.last() == 2 * call.in[0].shape.last();
}

}  // namespace

void add_gated_kernels(KernelRegistry& registry) {
  registry.add({"cuda.swiglu", Op::Swiglu, supports_gated, nullptr, run_gated<Silu>});
  registry.add({"cuda.swiglu_grad", Op::SwigluGrad, supports_gated_grad, nullptr, run_gated_grad<Silu>});
  registry.add({"cuda.geglu", Op::Geglu, supports_gated, nullptr, run_gated<Gelu>});
  registry.add({"cuda.geglu_grad", Op::GegluGrad, supports_gated_grad, nullptr, run_gated_grad<Gelu>});
}

}  // namespace tandem::cuda
