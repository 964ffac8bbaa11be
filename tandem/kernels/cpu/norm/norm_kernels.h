// The row norms. LayerNorm and RmsNorm share their templates; this is what the rest of the backend sees.
#pragma once

#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

enum class NormKind { Layer, Rms };

inline bool adds_one(const Attrs& attrs) { return attrs.integer_or("plus_one", 0) != 0; }

// fp32 copies that a forward norm of 16-bit tensors, or one that adds one to gamma, works on: gamma, beta,
// and a row for each worker.
struct NormScratch {
  NormScratch(std::span<std::byte> workspace, int64_t width)
      : gamma(reinterpret_cast<float*>(workspace.data())), beta(gamma + width), stride(width) {}
  float* row(int worker) const { return gamma + (2 + worker) * stride; }
  static size_t bytes(int64_t width, int num_threads) {
    return static_cast<size_t>((2 + num_threads) * width) * sizeof(float);
  }

  float* gamma;
  float* beta;
  int64_t stride;
};

void add_layer_norm_kernels(KernelRegistry& registry);  // LayerNorm, AddLayerNorm, LayerNormGrad
void add_rms_norm_kernels(KernelRegistry& registry);    // RmsNorm, AddRmsNorm, RmsNormGrad
void add_qk_norm_kernels(KernelRegistry& registry);     // QkNorm, QkNormGrad

template <NormKind kKind>
bool supports_norm(const CallSignature& call);
template <NormKind kKind>
bool supports_add_norm(const CallSignature& call);
template <NormKind kKind>
bool supports_norm_grad(const CallSignature& call);
size_t norm_workspace(const CallSignature& call, int num_threads);
template <NormKind kKind>
size_t norm_grad_workspace(const CallSignature& call, int num_threads);

}  // namespace tandem::cpu
