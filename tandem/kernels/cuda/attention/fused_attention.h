// Attention through cuDNN's fused engines: scores, mask, softmax and products in one kernel. Queries, keys
// and values, and their gradients, are strided views of the packed tensors. An engine is found for each
// shape, device and direction when it first runs, which must not be inside a capture, and kept.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>
#include <span>

#include "tandem/base/dtype.h"
#include "tandem/kernels/cuda/library/cudnn_graph.h"

namespace tandem::cuda {

struct FusedAttention {
  int64_t batch = 0, time = 0, heads = 0, kv_heads = 0, head_dim = 0;
  DType type = DType::BF16;
  bool causal = true;
  float scale = 0;     // of scores; 0: 1 / sqrt(head_dim)
  int64_t window = 0;  // keys that a query sees, itself and those before it; 0: all
  float cap = 0;       // scores become cap tanh(score / cap); 0: they stay
  // The gradient's sums in a fixed order: the queries' gradient is then made from gradients of scores in
  // memory, 16 bits each, and not by fp32 atomic additions.
  bool deterministic = true;
  // Scores whose gradients are in memory at once; beyond it, the gradient is made some sequences at a time.
  int64_t max_scores = int64_t{1} << 31;

  bool is_plain() const { return scale == 0 && window == 0 && cap == 0; }
  int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }  // of a packed row
  auto operator<=>(const FusedAttention&) const = default;
};

inline constexpr int64_t kFusedHeadDim = 128;   // of every GPU's engines
inline constexpr int64_t kHopperHeadDim = 256;  // of a Hopper's
bool fused_attention_supported(const FusedAttention& shape, int64_t max_head_dim = kFusedHeadDim);
bool fused_attention_grad_supported(const FusedAttention& shape, int64_t max_head_dim = kFusedHeadDim);

// Scratch: a bound that needs neither a GPU nor the library, so that a step planned anywhere is the step that
// runs. An engine that wants more is not chosen.
size_t fused_attention_workspace(const FusedAttention& shape);
size_t fused_attention_grad_workspace(const FusedAttention& shape);

struct FusedAttentionTensors {
  void* qkv;
  void* out;
  void* lse;
};
void run_fused_attention(const FusedAttention& shape, const FusedAttentionTensors& tensors,
                         std::span<std::byte> workspace, cudaStream_t queue);

struct FusedAttentionGradTensors {
  void* dout;
  void* qkv;
  void* out;
  void* lse;
  void* dqkv;
};
void run_fused_attention_grad(const FusedAttention& shape, const FusedAttentionGradTensors& tensors,
                              std::span<std::byte> workspace, cudaStream_t queue);

// The graphs, not yet finalized. In memory are q, k, v, out, lse; and q, k, v, out, dout, lse, dq, dk, dv,
// row_sums (f32 [B,heads,T]) and, without a fixed order, dq_sums (f32 [B,heads,T,head_dim]).
cudnn::Graph fused_attention_graph(const FusedAttention& shape);
cudnn::Graph fused_attention_grad_graph(const FusedAttention& shape);

}  // namespace tandem::cuda
