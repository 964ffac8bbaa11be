// The moving average of weights. CPU and GPU both make it here, and to the same bits: each operation is
// rounded to fp32, none is fused with another.
#pragma once

#include <cstdint>

#include "tandem/base/device_function.h"
#include "tandem/optimizers/entry.h"

namespace tandem {

struct EmaStep {
  float decay, rest;  // 1 - decay
  bool first;         // update: the average is the weight
  bool skip;          // the gradients were not finite: nothing was updated
};

// From the op's inputs hyper and norm f64[2].
TANDEM_HOST_DEVICE inline EmaStep ema_step(double decay, const float* hyper, const double* norm) {
  return {.decay = static_cast<float>(decay),
          .rest = static_cast<float>(1 - decay),
          .first = hyper[kHyperStep] <= 1,
          .skip = norm[1] == 0};
}

TANDEM_HOST_DEVICE inline float next_average(const EmaStep& step, float average, float w) {
  if (step.skip) return average;
  if (step.first) return w;
#ifdef __CUDA_ARCH__
  return __fadd_rn(__fmul_rn(step.decay, average), __fmul_rn(step.rest, w));
#else
  return step.decay * average + step.rest * w;
#endif
}

}  // namespace tandem
