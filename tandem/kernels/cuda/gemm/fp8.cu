// Scales of 8-bit floats, and the ops that end in quantizing.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/ir/infer.h"
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

// Of the largest of several parts' ranges.
__global__ void scales_kernel(const float* range, float4* scale, int64_t n, int64_t parts, float unknown) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float most = range[i];
  for (int64_t part = 1; part < parts; ++part) most = fmaxf(most, range[part * n + i]);
  const float value = most == 0 ? unknown : power_of_two_above(most);
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

// The largest |w| becomes what a scale is to be made of.
__global__ void finish_weight_ranges_kernel(float* range, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float need = range[i] / kLargestE4M3;
  range[i] = isfinite(need) ? need : 0.0f;
}

// `needs`: of `ranks` ranks, this one's among them.
__global__ void ranges_kernel(float* range, float* need, int64_t n, const float* needs, int64_t ranks) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float most = need[i];
  for (int64_t rank = 0; rank < ranks; ++rank) most = fmaxf(most, needs[rank * n + i]);
  if (isfinite(most)) range[i] = fmaxf(most, range[i] * 0.875f);
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

// Pieces of weights, and where they are stored in 8 bits.
struct PieceItem {
  const void* src;
  uint8_t* dst;
  const float* scale;
  int64_t elems;
};

__global__ void __launch_bounds__(kChunkThreads)
    quantize_pieces_kernel(const __grid_constant__ TensorList<PieceItem> list) {
  using T = __nv_bfloat16;
  static_assert(Pack<T>::kSize == 8);
  const Chunk chunk = chunk_of_block(list);
  const PieceItem& item = list.items[chunk.tensor];
  const T* src = static_cast<const T*>(item.src) + chunk.begin;
  uint8_t* dst = item.dst + chunk.begin;
  const float inverse = 1.0f / *item.scale;
  for (int i = static_cast<int>(threadIdx.x) * 8; i < chunk.elems; i += kChunkThreads * 8) {
    float x[8];
    to_floats(load_pack(src + i).value, x);
#pragma unroll
    for (float& value : x) value *= inverse;
    *reinterpret_cast<uint2*>(dst + i) =
        uint2{four_fp8<__NV_E4M3>(x[0], x[1], x[2], x[3]), four_fp8<__NV_E4M3>(x[4], x[5], x[6], x[7])};
  }
}

void run_scales(const KernelArgs& args, Stream& stream) {
  const int64_t n = args.out[0].type.shape[0];
  scales_kernel<<<static_cast<unsigned>(num_blocks(n)), kVectorThreads, 0, queue_of(stream)>>>(
      args.in[0].as<const float>(), args.out[0].as<float4>(), n, args.in[0].elems() / n,
      std::ldexp(1.0f, static_cast<int>(args.attrs.integer("unknown"))));
  check_launch("fp8_scales");
}

// Of whole weights their scales; of pieces what the scales are to be made of.
void run_weight_scales(const KernelArgs& args, Stream& stream) {
  const cudaStream_t queue = queue_of(stream);
  auto* scale = args.out[0].as<float>();
  const bool of_pieces = args.attrs.has("slots");
  const std::vector<int64_t> slots =
      of_pieces ? parse_numbers(args.attrs.text("slots")) : std::vector<int64_t>();
  const int64_t n = args.out[0].type.shape[0];
  check(cudaMemsetAsync(scale, 0, static_cast<size_t>(args.out[0].type.bytes()), queue), "fp8_weight_scales");
  TensorList<WeightItem> list;
  const auto launch = [&] {
    if (list.size > 0)
      largest_kernel<<<static_cast<unsigned>(list.num_blocks()), kChunkThreads, 0, queue>>>(list);
    check_launch("fp8_weight_scales");
    list.size = 0;
  };
  for (size_t i = 0; i < args.in.size(); ++i) {
    float* const most = of_pieces ? scale + slots.at(i) : scale + 4 * i;
    list.add({args.in[i].data, args.in[i].elems(), most});
    if (list.full()) launch();
  }
  launch();
  const auto blocks = static_cast<unsigned>(num_blocks(n));
  if (of_pieces) {
    finish_weight_ranges_kernel<<<blocks, kVectorThreads, 0, queue>>>(scale, n);
  } else {
    finish_weight_scales_kernel<<<blocks, kVectorThreads, 0, queue>>>(args.out[0].as<float4>(), n);
  }
  check_launch("fp8_weight_scales");
}

void run_ranges(const KernelArgs& args, Stream& stream) {
  const int64_t n = args.out[0].elems();
  ranges_kernel<<<static_cast<unsigned>(num_blocks(n)), kVectorThreads, 0, queue_of(stream)>>>(
      args.out[0].as<float>(), args.out[1].as<float>(), n,
      args.in.size() > 2 ? args.in[2].as<const float>() : nullptr,
      args.in.size() > 2 ? args.in[2].elems() / n : 0);
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

// Quantized before, with the same scale, to be turned.
struct QuantizedSource {
  static constexpr int kParts = 1;
  const uint8_t* q;
  const float* scale;
  int64_t cols;

  __device__ __forceinline__ void load(int64_t row, int64_t col, float (&out)[1][kTileGroup]) const {
    const uint2 words = *reinterpret_cast<const uint2*>(q + row * cols + col);
    const uint32_t halves[] = {words.x, words.y};
#pragma unroll
    for (int i = 0; i < kTileGroup; ++i) {
      __nv_fp8_e4m3 value;
      value.__x = static_cast<__nv_fp8_storage_t>(halves[i / 4] >> (8 * (i % 4)));
      out[0][i] = static_cast<float>(value) * *scale;
    }
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
      const GatedSlopes slopes = swiglu_slopes(grad[i], gate[i], up[i]);
      out[0][i] = slopes.gate;
      out[1][i] = slopes.up;
    }
#pragma unroll
    for (auto& part : out) to_floats(round_pack<Bf16>(part).value, part);
  }
};

void run_quantize_pieces(const KernelArgs& args, Stream& stream) {
  const std::vector<int64_t> numbers = parse_numbers(args.attrs.text("pieces"));
  TensorList<PieceItem> list;
  const auto launch = [&] {
    if (list.size > 0)
      quantize_pieces_kernel<<<static_cast<unsigned>(list.num_blocks()), kChunkThreads, 0,
                               queue_of(stream)>>>(list);
    check_launch("fp8_quantize_pieces");
    list.size = 0;
  };
  for (size_t i = 0; i + 2 < numbers.size(); i += 3) {
    const int64_t slot = numbers[i], begin = numbers[i + 1];
    list.add({args.in[0].as<const Bf16>() + begin, args.out[0].as<uint8_t>() + begin,
              args.in[1].as<const float>() + 4 * slot, numbers[i + 2]});
    if (list.full()) launch();
  }
  launch();
}

void run_quantize(const KernelArgs& args, Stream& stream) {
  const Shape& x = args.in[0].type.shape;
  if (args.in[0].type.dtype == DType::F8E4M3) {
    const Fp8Target target = fp8_target(args, 1, x);
    launch_fp8_tile(QuantizedSource{args.in[0].as<const uint8_t>(), target.scale, x.last()}, target, args,
                    queue_of(stream));
    return check_launch("fp8_quantize");
  }
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
// Pieces of a flat buffer that a lane's 8 elements cut nowhere.
bool supports_pieces(const CallSignature& call) {
  if (!call.attrs->has("pieces") || call.in[0].dtype != DType::BF16) return false;
  const std::vector<int64_t> numbers = parse_numbers(call.attrs->text("pieces"));
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i % 3 != 0 && numbers[i] % Pack<Bf16>::kSize != 0) return false;
  }
  return true;
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

bool supports_quantize(const CallSignature& call) {
  if (call.attrs->has("pieces")) return false;
  CallSignature plain = call;
  if (plain.in[0].dtype == DType::F8E4M3) plain.in[0].dtype = DType::BF16;  // a lane has as many of them
  return supports_tile(plain, plain.in[0].shape, 1);
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
  registry.add({"cuda.fp8_quantize", Op::Fp8Quantize, supports_quantize, nullptr, run_quantize});
  registry.add({"cuda.fp8_quantize_pieces", Op::Fp8Quantize, supports_pieces, nullptr, run_quantize_pieces});
  registry.add(
      {"cuda.fp8_swiglu", Op::Fp8Swiglu,
       [](const CallSignature& call) { return supports_tile(call, swiglu_shape(call.in[0].shape), 1); },
       nullptr, run_swiglu});
  registry.add({"cuda.fp8_swiglu_grad", Op::Fp8SwigluGrad,
                [](const CallSignature& call) { return supports_tile(call, call.in[1].shape, 2); }, nullptr,
                run_swiglu_grad});
}

}  // namespace tandem::cuda
