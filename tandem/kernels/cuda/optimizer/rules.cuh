// The update rules on the GPU: the fp32 operations that each optimizer's header (tandem/optimizers) says, in
// that order, to the bits of the CPU's kernels: _rn spells out operations that nvcc neither fuses nor
// approximates. A rule gives the new weight from the old one and the gradient, and updates the states. Where
// a weight does not decay, the step has decay 0 and keep 1.
#pragma once

#include "tandem/optimizers/optimizers.h"

namespace tandem::cuda {

__device__ __forceinline__ float updated_weight(const OptimizerStep<AdamW>& step, float w, float g, float& m,
                                                float& v) {
  m = __fadd_rn(__fmul_rn(step.own.beta1, m), __fmul_rn(step.own.rest1, g));
  v = __fadd_rn(__fmul_rn(step.own.beta2, v), __fmul_rn(step.own.rest2, __fmul_rn(g, g)));
  const float root = __fadd_rn(__fmul_rn(__fsqrt_rn(v), step.own.root_scale), step.own.eps);
  const float direction = __fdiv_rn(__fmul_rn(step.own.rate, m), root);
  return __fsub_rn(__fmul_rn(w, step.keep), direction);
}

__device__ __forceinline__ float updated_weight(const OptimizerStep<Sgd>& step, float w, float g, float& m) {
  const float decayed_g = __fadd_rn(__fmul_rn(step.decay, w), g);
  m = __fadd_rn(__fmul_rn(step.own.momentum, m), decayed_g);
  return __fsub_rn(w, __fmul_rn(step.lr, m));
}

__device__ __forceinline__ float updated_weight(const OptimizerStep<Lion>& step, float w, float g, float& m) {
  const float c = __fadd_rn(__fmul_rn(step.own.beta1, m), __fmul_rn(step.own.rest1, g));
  m = __fadd_rn(__fmul_rn(step.own.beta2, m), __fmul_rn(step.own.rest2, g));
  const float move = c == 0 ? 0.0f : copysignf(step.lr, c);
  return __fsub_rn(__fmul_rn(w, step.keep), move);
}

__device__ __forceinline__ float direction(const OptimizerStep<Lamb>& step, float w, float g, float& m,
                                           float& v) {
  m = __fadd_rn(__fmul_rn(step.own.beta1, m), __fmul_rn(step.own.rest1, g));
  v = __fadd_rn(__fmul_rn(step.own.beta2, v), __fmul_rn(step.own.rest2, __fmul_rn(g, g)));
  const float root = __fadd_rn(__fmul_rn(__fsqrt_rn(v), step.own.root_scale), step.own.eps);
  return __fadd_rn(__fdiv_rn(__fmul_rn(step.own.mean_scale, m), root), __fmul_rn(step.decay, w));
}
__device__ __forceinline__ float updated_weight(const OptimizerStep<Lamb>& step, float w, float g, float& m,
                                                float& v) {
  return __fsub_rn(w, __fmul_rn(__fmul_rn(step.lr, step.own.trust), direction(step, w, g, m, v)));
}
// What the second norm of a whole parameter is of; the first is the weight's.
__device__ __forceinline__ float measured(const OptimizerStep<Lamb>& step, float w, float g, float m,
                                          float v) {
  return direction(step, w, g, m, v);
}

__device__ __forceinline__ float updated_weight(const OptimizerStep<Lars>& step, float w, float g, float& m) {
  const float decayed_g = __fadd_rn(__fmul_rn(step.decay, w), g);
  m = __fadd_rn(__fmul_rn(step.own.momentum, m), __fmul_rn(step.own.trust, decayed_g));
  return __fsub_rn(w, __fmul_rn(step.lr, m));
}
__device__ __forceinline__ float measured(const OptimizerStep<Lars>&, float, float g, float) { return g; }

__device__ __forceinline__ float updated_weight(const OptimizerStep<Adafactor>& step, float w, float u) {
  return __fsub_rn(__fmul_rn(w, step.keep), __fmul_rn(step.own.trust, u));
}
__device__ __forceinline__ float measured(const OptimizerStep<Adafactor>&, float, float u) { return u; }

// What passes read, of the average that is trained.
__device__ __forceinline__ float shown_weight(const OptimizerStep<ScheduleFree>& step, float x, float lead) {
  return __fadd_rn(x, __fmul_rn(step.own.share, lead));
}
__device__ __forceinline__ float updated_weight(const OptimizerStep<ScheduleFree>& step, float x, float g,
                                                float& lead, float& v) {
  v = __fadd_rn(__fmul_rn(step.own.beta2, v), __fmul_rn(step.own.rest2, __fmul_rn(g, g)));
  const float root = __fadd_rn(__fmul_rn(__fsqrt_rn(v), step.own.root_scale), step.own.eps);
  const float direction = __fadd_rn(__fdiv_rn(g, root), __fmul_rn(step.decay, shown_weight(step, x, lead)));
  const float moved = __fsub_rn(lead, __fmul_rn(step.lr, direction));
  lead = __fmul_rn(step.own.rest, moved);
  return __fadd_rn(x, __fmul_rn(step.own.average, moved));
}

// What its other ops have made of gradient and momentum comes in the gradient's place.
__device__ __forceinline__ float updated_weight(const OptimizerStep<Muon>& step, float w, float o) {
  return __fsub_rn(__fmul_rn(w, step.keep), __fmul_rn(step.lr, o));
}

}  // namespace tandem::cuda
