// Elementwise kernels. A thread has several 16-byte groups of elements on their way at once, and reads all of
// its own before it writes one, so the output may take over the first input's bytes.
#include <algorithm>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/groups.cuh"
#include "tandem/kernels/cuda/pointwise/gelu.cuh"
#include "tandem/kernels/cuda/pointwise/row_kernels.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnaryGroups = 4;  // a thread: 64 bytes of its inputs
constexpr int kBinaryGroups = 2;

// The type that arithmetic on T is done in. An i32 does not fit into a float.
template <typename T>
__device__ __forceinline__ float widen(T x) {
  return to_float(x);
}
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ double widen(int32_t x) { return x; }
__device__ __forceinline__ float widen(uint8_t x) { return x; }

template <typename T, typename Wide>
__device__ __forceinline__ T narrow(Wide x) {
  if constexpr (sizeof(T) == sizeof(double)) {
    return x;
  } else {
    return from_float<T>(static_cast<float>(x));
  }
}

template <int kSize, typename To, typename From, typename Fn>
__global__ void __launch_bounds__(kThreads) map_unary(int64_t elems, const From* x, To* y, Fn fn) {
  const int64_t first = int64_t{blockIdx.x} * kUnaryGroups * kThreads + threadIdx.x;
  Group<From, kSize> in[kUnaryGroups];
#pragma unroll
  for (int k = 0; k < kUnaryGroups; ++k) {
    const int64_t at = (first + k * kThreads) * kSize;
    if (at + kSize <= elems) in[k] = load_group<kSize>(x + at);
  }
#pragma unroll
  for (int k = 0; k < kUnaryGroups; ++k) {
    const int64_t at = (first + k * kThreads) * kSize;
    if (at + kSize <= elems) {
      Group<To, kSize> out;
#pragma unroll
      for (int i = 0; i < kSize; ++i) out.value[i] = narrow<To>(fn(widen(in[k].value[i])));
      store_group(y + at, out);
    }
  }
  if (blockIdx.x == 0 && threadIdx.x < elems % kSize) {
    const int64_t i = elems - 1 - threadIdx.x;
    y[i] = narrow<To>(fn(widen(x[i])));
  }
}

template <int kSize, typename T, typename Fn>
__global__ void __launch_bounds__(kThreads) map_binary(int64_t elems, const T* a, const T* b, T* y, Fn fn) {
  const int64_t first = int64_t{blockIdx.x} * kBinaryGroups * kThreads + threadIdx.x;
  Group<T, kSize> lhs[kBinaryGroups], rhs[kBinaryGroups];
#pragma unroll
  for (int k = 0; k < kBinaryGroups; ++k) {
    const int64_t at = (first + k * kThreads) * kSize;
    if (at + kSize <= elems) {
      lhs[k] = load_group<kSize>(a + at);
      rhs[k] = load_group<kSize>(b + at);
    }
  }
#pragma unroll
  for (int k = 0; k < kBinaryGroups; ++k) {
    const int64_t at = (first + k * kThreads) * kSize;
    if (at + kSize <= elems) {
      Group<T, kSize> out;
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        out.value[i] = narrow<T>(fn(widen(lhs[k].value[i]), widen(rhs[k].value[i])));
      store_group(y + at, out);
    }
  }
  if (blockIdx.x == 0 && threadIdx.x < elems % kSize) {
    const int64_t i = elems - 1 - threadIdx.x;
    y[i] = narrow<T>(fn(widen(a[i]), widen(b[i])));
  }
}

unsigned blocks_for(int64_t elems, int elems_per_thread) {
  const int64_t block_elems = int64_t{kThreads} * elems_per_thread;
  return static_cast<unsigned>((elems + block_elems - 1) / block_elems);
}

template <typename To, typename From, typename Fn>
void launch_unary(const KernelArgs& args, Stream& stream, Fn fn) {
  constexpr int kSize = 16 / static_cast<int>(std::max(sizeof(To), sizeof(From)));
  const int64_t elems = args.out[0].elems();
  if (elems == 0) return;
  const From* x = args.in[0].as<From>();
  To* y = args.out[0].as<To>();
  if (is_aligned(x, sizeof(From) * kSize) && is_aligned(y, sizeof(To) * kSize)) {
    map_unary<kSize>
        <<<blocks_for(elems, kUnaryGroups * kSize), kThreads, 0, queue_of(stream)>>>(elems, x, y, fn);
  } else {
    map_unary<1><<<blocks_for(elems, kUnaryGroups), kThreads, 0, queue_of(stream)>>>(elems, x, y, fn);
  }
  check_launch("elementwise kernel");
}

template <typename T, typename Fn>
void launch_binary(const KernelArgs& args, Stream& stream, Fn fn) {
  constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  const int64_t elems = args.out[0].elems();
  if (elems == 0) return;
  const T* a = args.in[0].as<T>();
  const T* b = args.in[1].as<T>();
  T* y = args.out[0].as<T>();
  if (is_aligned(a, 16) && is_aligned(b, 16) && is_aligned(y, 16)) {
    map_binary<kSize>
        <<<blocks_for(elems, kBinaryGroups * kSize), kThreads, 0, queue_of(stream)>>>(elems, a, b, y, fn);
  } else {
    map_binary<1><<<blocks_for(elems, kBinaryGroups), kThreads, 0, queue_of(stream)>>>(elems, a, b, y, fn);
  }
  check_launch("elementwise kernel");
}

// for_storage, and f64.
template <typename Fn>
void for_float(DType dtype, Fn&& fn) {
  if (dtype == DType::F64) return fn(static_cast<double*>(nullptr));
  for_storage(dtype, fn);
}

template <typename Fn>
void for_any(DType dtype, Fn&& fn) {
  if (dtype == DType::I32) return fn(static_cast<int32_t*>(nullptr));
  if (dtype == DType::U8) return fn(static_cast<uint8_t*>(nullptr));
  for_float(dtype, fn);
}

struct Sum {
  template <typename Wide>
  __device__ Wide operator()(Wide a, Wide b) const {
    return a + b;
  }
};

struct ScaledBy {
  double factor;
  __device__ float operator()(float x) const { return static_cast<float>(factor) * x; }
  __device__ double operator()(double x) const { return factor * x; }
};

struct Same {
  template <typename Wide>
  __device__ Wide operator()(Wide x) const {
    return x;
  }
};

struct GeluOf {
  __device__ float operator()(float x) const { return gelu(x); }
};

struct TimesGeluSlope {
  __device__ float operator()(float dy, float x) const { return dy * gelu_slope(x); }
};

struct ReluOf {
  __device__ float operator()(float x) const { return x < 0 ? 0 : x; }  // a NaN stays one
};

struct WherePositive {
  __device__ float operator()(float dy, float y) const { return y > 0 ? dy : 0; }
};

struct Softcapped {
  float cap;
  __device__ float operator()(float x) const { return cap * tanhf(x / cap); }
};

struct TimesSoftcapSlope {
  float cap;
  __device__ float operator()(float dy, float x) const {
    const float t = tanhf(x / cap);
    return dy * fmaf(-t, t, 1.0f);
  }
};

void run_add(const KernelArgs& args, Stream& stream) {
  for_float(args.out[0].type.dtype, [&]<typename T>(T*) { launch_binary<T>(args, stream, Sum()); });
}
void run_scale(const KernelArgs& args, Stream& stream) {
  const ScaledBy fn{args.attrs.real("factor")};
  for_float(args.out[0].type.dtype, [&]<typename T>(T*) { launch_unary<T, T>(args, stream, fn); });
}
void run_gelu(const KernelArgs& args, Stream& stream) {
  for_storage(args.out[0].type.dtype, [&]<typename T>(T*) { launch_unary<T, T>(args, stream, GeluOf()); });
}
void run_gelu_grad(const KernelArgs& args, Stream& stream) {
  for_storage(args.out[0].type.dtype,
              [&]<typename T>(T*) { launch_binary<T>(args, stream, TimesGeluSlope()); });
}
void run_relu(const KernelArgs& args, Stream& stream) {
  for_storage(args.out[0].type.dtype, [&]<typename T>(T*) { launch_unary<T, T>(args, stream, ReluOf()); });
}
void run_relu_grad(const KernelArgs& args, Stream& stream) {
  for_storage(args.out[0].type.dtype,
              [&]<typename T>(T*) { launch_binary<T>(args, stream, WherePositive()); });
}
void run_softcap(const KernelArgs& args, Stream& stream) {
  const Softcapped fn{static_cast<float>(args.attrs.real("cap"))};
  for_storage(args.out[0].type.dtype, [&]<typename T>(T*) { launch_unary<T, T>(args, stream, fn); });
}
void run_softcap_grad(const KernelArgs& args, Stream& stream) {
  const TimesSoftcapSlope fn{static_cast<float>(args.attrs.real("cap"))};
  for_storage(args.out[0].type.dtype, [&]<typename T>(T*) { launch_binary<T>(args, stream, fn); });
}
void run_cast(const KernelArgs& args, Stream& stream) {
  for_float(args.out[0].type.dtype, [&]<typename To>(To*) {
    for_any(args.in[0].type.dtype,
            [&]<typename From>(From*) { launch_unary<To, From>(args, stream, Same()); });
  });
}

bool all_like_output(const CallSignature& call, size_t num_inputs) {
  return call.in.size() == num_inputs && call.out.size() == 1 &&
         std::all_of(call.in.begin(), call.in.end(), [&](const TensorType& type) {
           return type.dtype == call.out[0].dtype && type.shape.elems() == call.out[0].shape.elems();
         });
}
bool supports_unary(const CallSignature& call) {
  return all_like_output(call, 1) && is_storage(call.out[0].dtype);
}
bool supports_binary(const CallSignature& call) {
  return all_like_output(call, 2) && is_storage(call.out[0].dtype);
}
bool supports_scale(const CallSignature& call) {
  return all_like_output(call, 1) && is_float(call.out[0].dtype);
}
bool supports_add(const CallSignature& call) {
  return all_like_output(call, 2) && is_float(call.out[0].dtype);
}
bool supports_cast(const CallSignature& call) {
  return call.in.size() == 1 && is_float(call.out[0].dtype) &&
         call.in[0].shape.elems() == call.out[0].shape.elems();
}

}  // namespace

void add_pointwise_kernels(KernelRegistry& registry) {
  registry.add({"cuda.add", Op::Add, supports_add, nullptr, run_add});
  registry.add({"cuda.scale", Op::Scale, supports_scale, nullptr, run_scale});
  registry.add({"cuda.gelu", Op::Gelu, supports_unary, nullptr, run_gelu});
  registry.add({"cuda.gelu_grad", Op::GeluGrad, supports_binary, nullptr, run_gelu_grad});
  registry.add({"cuda.relu", Op::Relu, supports_unary, nullptr, run_relu});
  registry.add({"cuda.relu_grad", Op::ReluGrad, supports_binary, nullptr, run_relu_grad});
  registry.add({"cuda.softcap", Op::Softcap, supports_unary, nullptr, run_softcap});
  registry.add({"cuda.softcap_grad", Op::SoftcapGrad, supports_binary, nullptr, run_softcap_grad});
  registry.add({"cuda.cast", Op::Cast, supports_cast, nullptr, run_cast});
  add_dropout_kernels(registry);
  add_gated_kernels(registry);
  add_shape_kernels(registry);
}

}  // namespace tandem::cuda
