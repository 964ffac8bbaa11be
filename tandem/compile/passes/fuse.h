// Fewer trips to memory: neighbours become one op where a fused kernel exists.
//
// Changes: matmul + bias + gelu -> matmul_gelu (where backward also needs the pre-activation, and where the
//   gelu may be made together with the product);
//   add + norm -> add_norm; norm gradient + add of the residual's gradient -> one op;
//   where the backend asks for it, a product + gelu's gradient -> matmul_gelu_grad, and a bias's gradient
//   becomes part of an op that writes or reads the same rows (fuse_bias.h), and batch norm has the ReLU and
//   the residual that stand behind it (norms/fuse_norm.h);
//   swiglu or its gradient + quantizing to 8 bits -> one op (fp8.h);
//   a large vocabulary projection (+ scale) (+ softcap) + loss (+ their gradients) ->
//   linear_cross_entropy(_grad), in chunks of rows.
// Keeps: values bit for bit, except that the chunked projection sums its weight gradient chunk by chunk, that
//   matmul_gelu_grad does not round the product, and the order in which a bias's gradient is summed.
#pragma once

#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

// Those before it choose among single ops.
inline constexpr PassInfo kFusePass = {
    .name = "fuse", .needs_before = {"recompute", "fp8", "inference"}, .optional = true};

struct FuseOptions {
  int64_t chunk_logits_above = 16 << 20;  // bytes of logits from which the projection is chunked
  int64_t chunk_bytes = 8 << 20;          // logits in flight then (never under 256 rows)
  bool even_chunks = false;               // chunks of the same number of rows, where that can be
  bool logit_steps = true;                // the chunked loss may scale and cap its logits
  // Rows of logits that are no multiple of 16 bytes are slow for the backend's matrix products. The chunked
  // projection keeps them apart in its scratch, so it stands for the plain one whatever the size.
  bool chunk_ragged_logits = false;
  // The backend's matmul_gelu takes the gelu of the product before it is rounded, so its bits differ from
  // those of its parts: it stands for them everywhere, also where nobody needs the product.
  bool gelu_of_product = false;
  // Backward makes a gelu again, from the product as it is stored: not forward's bits where those are of the
  // product before it is rounded.
  bool gelu_again = false;
  bool gelu_grad = false;
  bool bias_sums = false;
  bool image_norms = false;  // batch norm with the ReLU and the residual behind it (norms/fuse_norm.h)
  // Whether attention's gradient makes sums, too, for such qkv {heads, kv_heads, causal}. Null: it does not.
  bool (*attention_sums)(const TensorType& qkv, const Attrs& attrs) = nullptr;
  bool sums_across_blocks = false;  // of biases (fuse_bias.h); the compiler sets it where a step is one pass
  bool outputs_again = false;       // gradients of norms and SwiGLU can give the forward's output again
};

Graph fuse(const Graph& graph, const FuseOptions& options = {});

}  // namespace tandem
