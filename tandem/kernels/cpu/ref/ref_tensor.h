// Element access for the reference kernels: any storage type is read and written as double, so that one
// plain loop serves f32, bf16, f16 and the f64 of gradient checks.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/runtime/kernel.h"

namespace tandem::cpu::ref {

inline double get(const TensorArg& tensor, int64_t i) {
  switch (tensor.type.dtype) {
    case DType::F32: return tensor.as<float>()[i];
    case DType::F64: return tensor.as<double>()[i];
    case DType::BF16: return to_float(tensor.as<BFloat16>()[i]);
    case DType::F16: return to_float(tensor.as<Half>()[i]);
    case DType::I32: return tensor.as<int32_t>()[i];
    case DType::I16: return tensor.as<int16_t>()[i];
    case DType::U8: return tensor.as<uint8_t>()[i];
    case DType::F8E4M3:
    case DType::F8E5M2: return fp8_to_float(tensor.as<uint8_t>()[i], tensor.type.dtype);
  }
  return 0;
}

inline void set(const TensorArg& tensor, int64_t i, double value) {
  switch (tensor.type.dtype) {
    case DType::F32: tensor.as<float>()[i] = static_cast<float>(value); return;
    case DType::F64: tensor.as<double>()[i] = value; return;
    case DType::BF16: tensor.as<BFloat16>()[i] = to_bfloat16(static_cast<float>(value)); return;
    case DType::F16: tensor.as<Half>()[i] = to_half(static_cast<float>(value)); return;
    case DType::I32: tensor.as<int32_t>()[i] = static_cast<int32_t>(value); return;
    case DType::I16: tensor.as<int16_t>()[i] = static_cast<int16_t>(value); return;
    case DType::U8: tensor.as<uint8_t>()[i] = static_cast<uint8_t>(value); return;
    case DType::F8E4M3:
    case DType::F8E5M2:
      tensor.as<uint8_t>()[i] = to_fp8(static_cast<float>(value), tensor.type.dtype);
      return;
  }
}

inline void accumulate(const TensorArg& tensor, int64_t i, double value) {
  set(tensor, i, get(tensor, i) + value);
}

// Accumulators are outputs that an op adds to, or overwrites where it is told that they are fresh.
inline void begin_accumulators(const KernelArgs& args, std::initializer_list<size_t> outputs) {
  if (args.attrs.integer_or("fresh", 0) == 0) return;
  for (size_t i : outputs) {
    for (int64_t e = 0; e < args.out[i].elems(); ++e) set(args.out[i], e, 0);
  }
}

inline int64_t index(const TensorArg& tensor, int64_t i) { return tensor.as<int32_t>()[i]; }  // ids, targets

// tanh form, as everywhere in Tandem
inline double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
inline double gelu_slope(double x) {
  const double k = std::sqrt(2 / std::numbers::pi);
  const double t = std::tanh(k * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}

// A reference kernel supports every call of its op and needs no scratch.
void add(KernelRegistry& registry, Op op, void (*run)(const KernelArgs& args, Stream& stream));

void add_matmul(KernelRegistry& registry);
void add_conv(KernelRegistry& registry);
void add_norm(KernelRegistry& registry);
void add_image_norm(KernelRegistry& registry);
void add_batch_norm_sync(KernelRegistry& registry);
void add_attention(KernelRegistry& registry);
void add_cached_attention(KernelRegistry& registry);
void add_qk_norm(KernelRegistry& registry);
void add_pointwise(KernelRegistry& registry);
void add_shape(KernelRegistry& registry);
void add_pool(KernelRegistry& registry);
void add_embedding(KernelRegistry& registry);
void add_loss(KernelRegistry& registry);
void add_vocab_loss(KernelRegistry& registry);
void add_optimizer(KernelRegistry& registry);
void add_loss_scaler(KernelRegistry& registry);
void add_fp8(KernelRegistry& registry);

}  // namespace tandem::cpu::ref
