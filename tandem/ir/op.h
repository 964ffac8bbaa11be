// The op set. Each op's comment is its contract: inputs in order, attributes in braces, outputs after
// "->". `N` is the number of rows (all dims but the last), `x!` an output that shares its input's bytes
// (an in-place update). Tensors are dense, row-major; images are NHWC; a linear weight is [out, in], a
// convolution weight [out, kh, kw, in]. Activations and weights have one storage type S (f32, bf16, f16,
// or f64 in gradient checks); arithmetic is fp32 or wider. Gradients accumulate: `acc` inputs are added to.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

enum class Op : uint8_t {
  // --- leaves ---------------------------------------------------------------------------------
  Input,  // {} -> value                       bound by name before each run
  Param,  // {init} -> value                   trainable weights, in S
  State,  // {category} -> value               a persistent buffer: gradients, master, optimizer, weights

  // --- linear algebra -------------------------------------------------------------------------
  Matmul,      // a, b [, bias[out]] {trans_a, trans_b} -> y      y = op(a) op(b) + bias, S
  MatmulGelu,  // a, b, bias {trans_a, trans_b} -> act, pre       pre = op(a) op(b) + bias; act = gelu(pre)
  MatmulAcc,   // acc, a, b {trans_a, trans_b} -> acc!            acc += op(a) op(b), acc f32
  Conv2d,      // x, w [, bias] {stride, pad} -> y
  Conv2dGradInput,   // dy, w {stride, pad, height, width} -> dx
  Conv2dGradWeight,  // acc, x, dy {stride, pad} -> acc!
  BiasGrad,          // acc[out], dy[N,out] -> acc!                     column sums

  // --- normalisation --------------------------------------------------------------------------
  LayerNorm,      // x, gamma, beta {eps} -> y, mean[N], rstd[N]            stats f32
  AddLayerNorm,   // a, b, gamma, beta {eps} -> sum, y, mean, rstd          sum = S(a + b), y from the rounded
                  // sum
  LayerNormGrad,  // dy, x, gamma, mean, rstd, acc_dgamma, acc_dbeta [, dres] -> dx (+ dres), dgamma!, dbeta!
  RmsNorm,        // x, gamma {eps} -> y, rstd[N]
  AddRmsNorm,     // a, b, gamma {eps} -> sum, y, rstd
  RmsNormGrad,    // dy, x, gamma, rstd, acc_dgamma [, dres] -> dx (+ dres), dgamma!
  BatchNorm,      // x, gamma, beta, running_mean, running_var {eps, momentum}
                  //   -> y, mean[C], rstd[C], running_mean!, running_var!  over all but the last dim
  BatchNormInfer,  // x, gamma, beta, running_mean, running_var {eps} -> y
  BatchNormGrad,   // dy, x, gamma, mean, rstd, acc_dgamma, acc_dbeta -> dx, dgamma!, dbeta!
  GroupNorm,       // x[B,H,W,C], gamma, beta {eps, groups} -> y, mean[B*groups], rstd[B*groups]
  GroupNormGrad,   // dy, x, gamma, mean, rstd, acc_dgamma, acc_dbeta {groups} -> dx, dgamma!, dbeta!

  // --- attention (packed qkv: [B, T, (heads + 2 kv_heads) * head_dim], query heads first) -------
  Rope,           // qkv {heads, kv_heads, theta} -> qkv!    rotate-half on queries and keys, position = t
  RopeGrad,       // dqkv {heads, kv_heads, theta} -> dqkv!  the inverse rotation
  Attention,      // qkv {heads, kv_heads, causal} -> out[B,T,heads*head_dim], lse[B,heads,T]   lse f32
  AttentionGrad,  // dout, qkv, out, lse {heads, kv_heads, causal} -> dqkv

  // --- pointwise and shape --------------------------------------------------------------------
  Add,                // a, b -> y
  Scale,              // x {factor} -> y
  Gelu,               // x -> y                      tanh form
  GeluGrad,           // dy, x -> dx
  Relu,               // x -> y
  ReluGrad,           // dy, y -> dx                 y is the forward output
  Swiglu,             // gate_up[N, 2 F] -> y[N, F]   silu(gate) * up, gate first
  SwigluGrad,         // dy, gate_up -> dgate_up
  Concat,             // a, b, ... -> y              along the last dim
  Slice,              // x {begin, size} -> y        along the last dim
  Reshape,            // x {shape: "2,3"} -> y!       a view
  Cast,               // x {dtype} -> y
  MaxPool2d,          // x {size, stride, pad} -> y, argmax (i32, index inside the image)
  MaxPool2dGrad,      // dy, argmax {height, width} -> dx
  GlobalAvgPool,      // x[B,H,W,C] -> y[B,C]
  GlobalAvgPoolGrad,  // dy {height, width} -> dx

  // --- embedding ------------------------------------------------------------------------------
  Embedding,      // ids[B,T] i32, table[V,d] [, pos[T,d]] -> y[B,T,d]
  EmbeddingGrad,  // acc[V,d], ids, dy -> acc!
  PositionGrad,   // acc[T,d], dy[B,T,d] -> acc!

  // --- loss (targets i32, -1 = ignored; scale f32[1] = loss scale / tokens of the global batch) --
  CrossEntropy,            // logits[N,V], targets -> stats f64[2] = (sum of nll, correct)
  CrossEntropyGrad,        // logits[N,V], targets, scale -> dlogits!, stats      overwrites the logits
  LinearCrossEntropy,      // x, w, targets {chunk} -> stats
  LinearCrossEntropyGrad,  // x, w, targets, scale, acc_dw {chunk} -> dx, stats, dw!   chunk rows at a time

  // --- optimizer (hyper f32[8], see kHyperLr; tensors come in groups, one group a parameter) ------
  GlobalNorm,  // hyper, g... -> norm f64[2] = (norm of the unscaled gradients, 1 if finite else 0)
  AdamW,       // hyper, norm, (w, g, m, v [, master])... {masters, decay: "1,0,.."} -> (w!, g!, m!, v! [,
               // master!])...
  Sgd,         // hyper, norm, (w, g, m [, master])... {masters, decay} -> (w!, g!, m! [, master!])...
};

inline constexpr int kNumOps = static_cast<int>(Op::Sgd) + 1;

// Slots of the `hyper` input. The optimizer ops skip the update where norm[1] is 0, and always leave the
// gradients zeroed for the next step.
inline constexpr int kHyperLr = 0;
inline constexpr int kHyperBeta1 = 1;  // momentum for Sgd
inline constexpr int kHyperBeta2 = 2;
inline constexpr int kHyperEps = 3;
inline constexpr int kHyperDecay = 4;
inline constexpr int kHyperStep = 5;  // 1-based count of updates made, this one included (bias correction)
inline constexpr int kHyperInvScale = 6;  // 1 / loss scale
inline constexpr int kHyperClip = 7;      // 0 = no clipping
inline constexpr int kHyperSlots = 8;

std::string_view op_name(Op op);     // "matmul_gelu"
Op parse_op(std::string_view name);  // throws ConfigError on an unknown name

}  // namespace tandem
