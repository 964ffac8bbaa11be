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

// What its other ops have made of gradient and momentum comes in the gradient's place.
__device__ __forceinline__ float updated_weight(const OptimizerStep<Muon>& step, float w, float o) {
  return __fsub_rn(__fmul_rn(w, step.keep), __fmul_rn(step.lr, o));
}

}  // namespace tandem::cuda
