// Scales of 8-bit floats, and the ops that end in quantizing.
#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/gemm/fp8_tile.cuh"
#include "tandem/kernels/cuda/groups.cuh"
#include "tandem/kernels/cuda/optimizer/tensor_list.cuh"
#include "tandem/kernels/cuda/pointwise/swiglu.cuh"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

constexpr int kVectorThreads = 256;

int64_t num_blocks(int64_t elems) { return (elems + kVectorThreads - 1) / kVectorThreads; }

// The power of two at or above x, which is positive and finite.
__device__ __forceinline__ float power_of_two_above(float x) {
  int exponent = 0;
  const float fraction = frexpf(x, &exponent);
  if (fraction == 0.5f) --exponent;
  return ldexpf(1.0f, min(max(exponent, -100), 100));
}

__global__ void scales_kernel(const float* range, float4* scale, int64_t n, float unknown) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float value = range[i] == 0 ? unknown : power_of_two_above(range[i]);
  scale[i] = float4{value, value, value, value};
}

// The first of four holds the largest |w| until this.
__global__ void finish_weight_scales_kernel(float4* scale, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float need = scale[i].x / kLargestE4M3;
  const float value = need == 0 || !isfinite(need) ? 1.0f : power_of_two_above(need);
  scale[i] = float4{value, value, value, value};
}

__global__ void ranges_kernel(float* range, float* need, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (isfinite(need[i])) range[i] = fmaxf(need[i], range[i] * 0.875f);
  need[i] = 0;
}

struct WeightItem {
  const void* data;
  int64_t elems;
  float* most;
};

__global__ void __launch_bounds__(kChunkThreads)
    largest_kernel(const __grid_constant__ TensorList<WeightItem> list) {
  using T = __nv_bfloat16;
  const Chunk chunk = chunk_of_block(list);
  const WeightItem& item = list.items[chunk.tensor];
  const T* src = static_cast<const T*>(item.data) + chunk.begin;
  float most = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) * Pack<T>::kSize; i < chunk.elems;
       i += kChunkThreads * Pack<T>::kSize) {
    const Pack<T> pack = load_pack(src + i);
#pragma unroll
    for (int e = 0; e < Pack<T>::kSize; ++e) most = fmaxf(most, fabsf(to_float(pack.value[e])));
  }
  raise_to(item.most, warp_max(most));
}

void run_scales(const KernelArgs& args, Stream& stream) {
  const int64_t n = args.in[0].elems();
  scales_kernel<<<static_cast<unsigned>(num_blocks(n)), kVectorThreads, 0, queue_of(stream)>>>(
      args.in[0].as<const float>(), args.out[0].as<float4>(), n,
      std::ldexp(1.0f, static_cast<int>(args.attrs.integer("unknown"))));
  check_launch("fp8_scales");
}

void run_weight_scales(const KernelArgs& args, Stream& stream) {
  const cudaStream_t queue = queue_of(stream);
  auto* scale = args.out[0].as<float>();
  const auto n = static_cast<int64_t>(args.in.size());
  check(cudaMemsetAsync(scale, 0, args.in.size() * sizeof(float4), queue), "fp8_weight_scales");
  TensorList<WeightItem> list;
  const auto launch = [&] {
    if (list.size > 0)
      largest_kernel<<<static_cast<unsigned>(list.num_blocks()), kChunkThreads, 0, queue>>>(list);
    check_launch("fp8_weight_scales");
    list.size = 0;
  };
  for (size_t i = 0; i < args.in.size(); ++i) {
    list.add({args.in[i].data, args.in[i].elems(), scale + 4 * i});
    if (list.full()) launch();
  }
  launch();
  finish_weight_scales_kernel<<<static_cast<unsigned>(num_blocks(n)), kVectorThreads, 0, queue>>>(
      args.out[0].as<float4>(), n);
  check_launch("fp8_weight_scales");
}

void run_ranges(const KernelArgs& args, Stream& stream) {
  const int64_t n = args.out[0].elems();
  ranges_kernel<<<static_cast<unsigned>(num_blocks(n)), kVectorThreads, 0, queue_of(stream)>>>(
      args.out[0].as<float>(), args.out[1].as<float>(), n);
  check_launch("fp8_ranges");
}

using Bf16 = __nv_bfloat16;
static_assert(Pack<Bf16>::kSize == kTileGroup);

struct PlainSource {
  static constexpr int kParts = 1;
  const Bf16* x;
  int64_t cols;

  __device__ __forceinline__ void load(int64_t row, int64_t col, float (&out)[1][kTileGroup]) const {
    const Pack<Bf16> pack = load_pack_once(x + row * cols + col);
    to_floats(pack.value, out[0]);
  }
};

struct SwigluSource {
  static constexpr int kParts = 1;
  const Bf16* gate_up;
  int64_t cols;

  __device__ __forceinline__ void load(int64_t row, int64_t col, float (&out)[1][kTileGroup]) const {
    float gate[kTileGroup], up[kTileGroup];
    to_floats(load_pack_once(gate_up + row * 2 * cols + col).value, gate);
    to_floats(load_pack_once(gate_up + row * 2 * cols + cols + col).value, up);
#pragma unroll
    for (int i = 0; i < kTileGroup; ++i) out[0][i] = swiglu_of(gate[i], up[i]);
    to_floats(round_pack<Bf16>(out[0]).value, out[0]);
  }
};

struct SwigluGradSource {
  static constexpr int kParts = 2;
  const Bf16* dy;
  const Bf16* gate_up;
  int64_t cols;

  __device__ __forceinline__ void load(int64_t row, int64_t col, float (&out)[2][kTileGroup]) const {
    float grad[kTileGroup], gate[kTileGroup], up[kTileGroup];
    to_floats(load_pack_once(dy + row * cols + col).value, grad);
    to_floats(load_pack_once(gate_up + row * 2 * cols + col).value, gate);
    to_floats(load_pack_once(gate_up + row * 2 * cols + cols + col).value, up);
#pragma unroll
    for (int i = 0; i < kTileGroup; ++i) {
      const SwigluSlopes slopes = swiglu_slopes(grad[i], gate[i], up[i]);
      out[0][i] = slopes.gate;
      out[1][i] = slopes.up;
    }
#pragma unroll
    for (auto& part : out) to_floats(round_pack<Bf16>(part).value, part);
  }
};

void run_quantize(const KernelArgs& args, Stream& stream) {
  const Shape& x = args.in[0].type.shape;
  launch_fp8_tile(PlainSource{args.in[0].as<const Bf16>(), x.last()}, fp8_target(args, 1, x), args,
                  queue_of(stream));
  check_launch("fp8_quantize");
}

Shape swiglu_shape(const Shape& gate_up) { return Shape({gate_up.rows(), gate_up.last() / 2}); }

void run_swiglu(const KernelArgs& args, Stream& stream) {
  const Shape y = swiglu_shape(args.in[0].type.shape);
  launch_fp8_tile(SwigluSource{args.in[0].as<const Bf16>(), y.last()}, fp8_target(args, 1, y), args,
                  queue_of(stream));
  check_launch("fp8_swiglu");
}

void run_swiglu_grad(const KernelArgs& args, Stream& stream) {
  const Shape& x = args.in[1].type.shape;
  launch_fp8_tile(SwigluGradSource{args.in[0].as<const Bf16>(), args.in[1].as<const Bf16>(), x.last() / 2},
                  fp8_target(args, 2, x), args, queue_of(stream));
  check_launch("fp8_swiglu_grad");
}

bool all_f32(const CallSignature& call) {
  const auto is_f32 = [](const TensorType& type) { return type.dtype == DType::F32; };
  return std::ranges::all_of(call.in, is_f32) && std::ranges::all_of(call.out, is_f32);
}
bool supports_weight_scales(const CallSignature& call) {
  return std::ranges::all_of(call.in, [](const TensorType& w) {
    return w.dtype == DType::BF16 && w.shape.elems() % Pack<Bf16>::kSize == 0;
  });
}

// Every group of columns is a lane's 16 bytes of bf16; of two parts side by side each has whole groups, too.
bool supports_tile(const CallSignature& call, const Shape& x, size_t num_in) {
  const bool bf16 = std::ranges::all_of(std::span(call.in).first(num_in),
                                        [](const TensorType& type) { return type.dtype == DType::BF16; });
  return bf16 && x.rows() > 0 && x.rows() % 16 == 0 && x.last() % (2 * kTileGroup) == 0;
}

}  // namespace

Fp8Target fp8_target(const KernelArgs& args, size_t num_in, const Shape& x) {
  Fp8Target target;
  size_t next = 0;
  const int64_t slot = args.attrs.integer("slot");
  if (args.attrs.integer("rows") != 0) target.q = args.out[next++].as<uint8_t>();
  if (args.attrs.integer("columns") != 0) target.qt = args.out[next++].as<uint8_t>();
  target.scale = args.in[num_in].as<const float>() + 4 * slot;
  if (args.in.size() > num_in + 1) target.need = args.out[next].as<float>() + slot;
  target.rows = x.rows();
  target.cols = x.last();
  return target;
}

void add_fp8_kernels(KernelRegistry& registry) {
  registry.add({"cuda.fp8_scales", Op::Fp8Scales, all_f32, nullptr, run_scales});
  registry.add(
      {"cuda.fp8_weight_scales", Op::Fp8WeightScales, supports_weight_scales, nullptr, run_weight_scales});
  registry.add({"cuda.fp8_ranges", Op::Fp8Ranges, all_f32, nullptr, run_ranges});
  registry.add({"cuda.fp8_quantize", Op::Fp8Quantize,
                [](const CallSignature& call) { return supports_tile(call, call.in[0].shape, 1); }, nullptr,
                run_quantize});
  registry.add(
      {"cuda.fp8_swiglu", Op::Fp8Swiglu,
       [](const CallSignature& call) { return supports_tile(call, swiglu_shape(call.in[0].shape), 1); },
       nullptr, run_swiglu});
  registry.add({"cuda.fp8_swiglu_grad", Op::Fp8SwigluGrad,
                [](const CallSignature& call) { return supports_tile(call, call.in[1].shape, 2); }, nullptr,
                run_swiglu_grad});
}

}  // namespace tandem::cuda
