// The op set. Each op's comment is its contract: inputs in order, attributes in braces, outputs after
// "->". `N` is the number of rows (all dims but the last), `x!` an output that shares its input's bytes
// (an in-place update). Tensors are dense, row-major; images are NHWC; a linear weight is [out, in], a
// convolution weight [out, kh, kw, in]. Activations and weights have one storage type S (f32, bf16, f16,
// or f64 in gradient checks); arithmetic is fp32 or wider. Gradients accumulate: `acc` inputs are added to,
// or overwritten, all of a node's, where it has the attribute {fresh: 1}.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tandem/optimizers/optimizers.h"

namespace tandem {

enum class Op : uint8_t {
  // --- leaves ---------------------------------------------------------------------------------
  Input,  // {} -> value                       bound by name before each run
  Param,  // {init} -> value                   trainable weights, in S
  State,  // {category} -> value               a persistent buffer: gradients, master, optimizer, weights
          // {transient: 1}: needed only from the op of `pass` that overwrites it to the end of the step

  // --- linear algebra -------------------------------------------------------------------------
  // With {wide: 1} y is f32 whatever S is: a partial sum, to be rounded once ranks have added theirs up.
  // {wide_grad: 1} says so of the gradient of a, where every rank has columns of y.
  Matmul,         // a, b [, bias[out]] {trans_a, trans_b} -> y      y = op(a) op(b) + bias, S
  MatmulGelu,     // a, b, bias {trans_a, trans_b} -> act, pre       pre = op(a) op(b) + bias; act = gelu(pre)
  MatmulAcc,      // acc, a, b {trans_a, trans_b} -> acc!            acc += op(a) op(b), acc f32
  MatmulBiasAcc,  // acc, acc_bias[out], a[N,out], b -> acc!, acc_bias!   acc += a^T b; acc_bias += column
                  // sums of a
  MatmulGeluGrad,    // dy, b, pre {trans_a, trans_b} -> dpre   dpre = (op(dy) op(b)) * gelu'(pre)
  Conv2d,            // x, w [, bias] {stride, pad} -> y
  Conv2dGradInput,   // dy, w {stride, pad, height, width} -> dx
  Conv2dGradWeight,  // acc, x, dy {stride, pad} -> acc!
  BiasGrad,          // acc[out], dy[N,out] -> acc!                     column sums

  // --- products of 8-bit floats (E: f8e4m3 or f8e5m2) -----------------------------------------
  // `scale` is f32[n,4]: row `slot` holds a power of two, four times, as matrix units read it from aligned
  // addresses. What is stored is x / scale, or the largest finite E where that is too large. A product's
  // operands are both stored along the inner dimension, so a tensor is quantized as it is ({rows: 1}),
  // transposed ({columns: 1}), or both, in that order.
  // `need` gathers the largest |x| / (largest finite E) that was quantized with each slot.
  Fp8Scales,        // range f32[n] {unknown} -> scale         the power of two at or above; 0 gives 2^unknown
  Fp8WeightScales,  // w... -> scale                           likewise, of the largest |w| / 448 of each
  Fp8Quantize,      // x, scale [, need] {slot, dtype, rows, columns} -> [q[N,K]] [, qt[K,N]] [, need!]
  Fp8Swiglu,        // gate_up, scale, need {slot, ...} -> as Fp8Quantize of Swiglu
  Fp8SwigluGrad,    // dy, gate_up, scale, need {slot, ...} -> as Fp8Quantize of SwigluGrad
  Fp8Matmul,  // a[N,K], b[out,K], scale_a, scale_b [, bias[out]] {slot_a, slot_b, dtype} -> y = a b^T + bias
  Fp8MatmulAcc,  // acc, a[M,K], b[N,K], scale_a, scale_b {slot_a, slot_b} -> acc!     acc += a b^T
  Fp8Ranges,     // range[n], need[n] -> range!, need!     range = max(need, 7/8 range); need = 0

  // --- normalisation --------------------------------------------------------------------------
  LayerNorm,     // x, gamma, beta {eps} -> y, mean[N], rstd[N]            stats f32
  AddLayerNorm,  // a, b, gamma, beta {eps} -> sum, y, mean, rstd          sum = S(a + b), y from the rounded
                 // sum
  // With {sums: 1} a norm's gradient, and attention's, has one more accumulator, its last input and output:
  // the column sums of its first output, which are the gradient of a bias that was added to what it
  // differentiates by. With {again: 1} a norm's reads beta, where there is one, and also gives the norm's own
  // output y, bit for bit.
  LayerNormGrad,   // dy, x, gamma, mean, rstd, acc_dgamma, acc_dbeta [, beta] [, dres] [, acc_bias]
                   //   -> dx (+ dres), dgamma!, dbeta! [, y] [, acc_bias!]
  RmsNorm,         // x, gamma {eps} -> y, rstd[N]
  AddRmsNorm,      // a, b, gamma {eps} -> sum, y, rstd
  RmsNormGrad,     // dy, x, gamma, rstd, acc_dgamma [, dres] [, acc_bias]
                   //   -> dx (+ dres), dgamma! [, y] [, acc_bias!]
  BatchNorm,       // x, gamma, beta, running_mean, running_var {eps, momentum}
                   //   -> y, mean[C], rstd[C], running_mean!, running_var!  over all but the last dim
  BatchNormInfer,  // x, gamma, beta, running_mean, running_var {eps} -> y
  BatchNormGrad,   // dy, x, gamma, mean, rstd, acc_dgamma, acc_dbeta -> dx, dgamma!, dbeta!
  // BatchNorm over the micro-batches of several ranks: statistics are gathered, or summed, in between.
  BatchNormStats,      // x -> parts f32[2,C] = (mean, sum of squared distances from it) of this rank's rows
  BatchNormApply,      // x, gamma, beta, running_mean, running_var, parts[size*2,C] {eps, momentum, size}
                       //   -> y, mean[C], rstd[C], running_mean!, running_var!
  BatchNormGradStats,  // dy, x, mean, rstd, acc_dgamma, acc_dbeta
                       //   -> sums f32[2,C] = (sum of dy, sum of dy * normalised x), dgamma!, dbeta!
  BatchNormGradApply,  // dy, x, gamma, mean, rstd, sums[2,C] {size} -> dx    sums over all ranks' rows
  GroupNorm,           // x[B,H,W,C], gamma, beta {eps, groups} -> y, mean[B*groups], rstd[B*groups]
  GroupNormGrad,       // dy, x, gamma, mean, rstd, acc_dgamma, acc_dbeta {groups} -> dx, dgamma!, dbeta!

  // --- attention (packed qkv: [B, T, (heads + 2 kv_heads) * head_dim], query heads first) -------
  Rope,           // qkv {heads, kv_heads, theta} -> qkv!    rotate-half on queries and keys, position = t
  RopeGrad,       // dqkv {heads, kv_heads, theta} -> dqkv!  the inverse rotation
  Attention,      // qkv {heads, kv_heads, causal} -> out[B,T,heads*head_dim], lse[B,heads,T]   lse f32
                  // {scratch}, if there, is how many bytes the gradient's kernel should work in
  AttentionGrad,  // dout, qkv, out, lse [, acc_bias] {heads, kv_heads, causal, sums} -> dqkv [, acc_bias!]

  // --- pointwise and shape --------------------------------------------------------------------
  Add,                // a, b -> y
  Scale,              // x {factor} -> y
  Gelu,               // x -> y                      tanh form
  GeluGrad,           // dy, x -> dx
  Relu,               // x -> y
  ReluGrad,           // dy, y -> dx                 y is the forward output
  Swiglu,             // gate_up[N, 2 F] -> y[N, F]   silu(gate) * up, gate first
  SwigluGrad,         // dy, gate_up {again} -> dgate_up [, y]     y of Swiglu, bit for bit
  Concat,             // a, b, ... -> y              along the last dim
  Slice,              // x {begin, size} -> y        along the last dim
  Reshape,            // x {shape: "2,3"} -> y!       a view
  View,               // x[n] {begin, shape} -> y!   a view of some elements of a flat buffer
  Join,               // x[n], parts... -> x!        the flat buffer once its views have been written
  Zeros,              // [dst] {dtype, shape} -> y (!)
  Cast,               // x {dtype} -> y
  MaxPool2d,          // x {size, stride, pad} -> y, argmax (i32, index inside the image)
  MaxPool2dGrad,      // dy, argmax {height, width} -> dx
  GlobalAvgPool,      // x[B,H,W,C] -> y[B,C]
  GlobalAvgPoolGrad,  // dy {height, width} -> dx

  // --- embedding ------------------------------------------------------------------------------
  // {first}, 0 by default: the table holds the ids from there on (a shard of the vocabulary); an id outside
  // it reads zeros and gets no gradient. Each row's sum is made first, then added to the accumulator.
  Embedding,      // ids[B,T] i32, table[V,d] [, pos[T,d]] {first} -> y[B,T,d]
  EmbeddingGrad,  // acc[V,d], ids, dy {first} -> acc!
  PositionGrad,   // acc[T,d], dy[B,T,d] -> acc!

  // --- loss (targets i32, -1 = ignored; scale f32[1] = loss scale / tokens of the global batch) --
  CrossEntropy,            // logits[N,V], targets -> stats f64[2] = (sum of nll, correct)
  CrossEntropyGrad,        // logits[N,V], targets, scale -> dlogits!, stats      overwrites the logits
  LinearCrossEntropy,      // x, w, targets {chunk} -> stats
  LinearCrossEntropyGrad,  // x, w, targets, scale, acc_dw {chunk} -> dx, stats, dw!   chunk rows at a time
  // The loss over a vocabulary that is split over ranks: each describes its columns, all parts are gathered
  // (`size` of them, rank by rank), and each goes on with its own columns. A part is f32 (largest logit, sum
  // of exp(logit - largest), the target's logit or -inf where it is not here, id of the largest).
  VocabParts,     // logits[N,V], targets {first} -> parts f32[N,4]
  VocabLoss,      // parts[size*N,4], targets {size} -> stats
  VocabLossGrad,  // logits[N,V], targets, parts[size*N,4], scale {first, size} -> dlogits!, stats
  AddStats,       // acc f64[n], stats f64[k] -> acc!                the first k of acc += stats

  // --- optimizer (hyper f32[n], see optimizers/entry.h) -----------------------------------------
  // The norm is made of one sum of squares per parameter ("slot"), so that it does not matter which rank
  // holds which: sums are f64 (one per slot, number of pieces that are not finite, the statistics).
  // A master is the f32 number that is trained, and its w is that rounded; beside a bf16 w it is the i16 half
  // that w lacks (base/split_float.h).
  SquareSums,  // hyper, stats f64[k], g... {slots: "0,1,..", num_slots} -> sums f64[num_slots + 1 + k]
  GlobalNorm,  // sums {num_slots} -> norm f64[2] = (norm of the unscaled gradients, 1 if finite else 0)
#define TANDEM_OP(type, name) type,
  // One for each optimizer of the table; tensors come in groups, one group a parameter:
  // hyper, norm, (w, g, states.. [, master]).. {masters, decay: "1,0,.."} -> (w!, g!, states!.. [,
  // master!])..
  // Where norm[1] is 0 the update is skipped. Gradients are left zeroed for the next step, unless that
  // overwrites them ({keep: 1}).
  TANDEM_OPTIMIZERS(TANDEM_OP)
#undef TANDEM_OP
  // The loss scale of fp16, which the step itself keeps (scaler f64[2], see kScalerScale).
  ScaleLoss,      // scale f32[1], scaler -> f32[1] = scale times the loss scale
  UnscaleHyper,   // hyper, scaler -> hyper, with 1 / loss scale in its slot
  NextLossScale,  // scaler, norm {window} -> scaler!      halved where norm[1] is 0, doubled after `window`
                  // good steps, but never below 1 nor doubled beyond 2^24

  // --- collectives over the `size` ranks of a mesh `axis`, and copies between memories ---------------
  // Parts are equal cuts of the first dim, one a rank. Given `dst`, the result is written there.
  AllGather,      // x [, dst] {axis, size} -> y (!)             x may be this rank's part of dst
  ReduceScatter,  // x [, dst] {axis, size, accumulate, dtype} -> y (!)  dst may be this rank's part of x;
                  // {dtype}, if there, is what the sum is rounded to
  AllReduce,      // x {axis, size} -> x!
  Send,           // x {axis, peer} -> x!                        peer: place on the axis
  Recv,           // {axis, peer, dtype, shape} -> y
  Copy,           // x [, dst] {to: "host" or "device"} -> y (!)
};

inline constexpr int kNumOps = static_cast<int>(Op::Copy) + 1;

// The optimizers' ops are in the order of their table.
constexpr Op optimizer_op(OptimizerKind kind) {
  return static_cast<Op>(static_cast<size_t>(Op::AdamW) + static_cast<size_t>(kind));
}
constexpr std::optional<OptimizerKind> optimizer_of(Op op) {
  const auto kind = static_cast<size_t>(op) - static_cast<size_t>(Op::AdamW);
  if (op < Op::AdamW || kind >= kNumOptimizers) return {};
  return static_cast<OptimizerKind>(kind);
}

// Slots of `scaler`.
inline constexpr int kScalerScale = 0;
inline constexpr int kScalerGoodSteps = 1;  // since the scale last changed, or a step was skipped
inline constexpr int kScalerSlots = 2;

std::string_view op_name(Op op);     // "matmul_gelu"
Op parse_op(std::string_view name);  // throws ConfigError on an unknown name

}  // namespace tandem
