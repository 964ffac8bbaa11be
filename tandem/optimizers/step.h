// The scalars of an update. CPU and GPU both work them out here: an update that was offloaded to the CPU must
// give the bits of one that was not. So each operation is one whose result IEEE 754 settles, none is fused
// with another, and a power is a product of squares, since libraries differ in pow. Kernels treat elements
// alike: what a rule's header says, every operation rounded to fp32, with g the stored gradient times
// grad_factor. A weight that does not decay has keep 1 and decay 0. Only the bits of NaNs may differ.
#pragma once

#include <cmath>
#include <cstdint>

#include "tandem/base/device_function.h"
#include "tandem/optimizers/entry.h"

namespace tandem {

// A product that no compiler fuses with the sum it goes into: nvcc would, g++ is told not to.
TANDEM_HOST_DEVICE inline double unfused_product(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

TANDEM_HOST_DEVICE inline double power_by_squaring(double base, int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) power = unfused_product(power, base);
    base = unfused_product(base, base);
  }
  return power;
}

// Of a rule (adamw.h): what all have, and what it makes of its own hyper-parameters.
template <typename Rule>
struct OptimizerStep {
  float grad_factor;  // of the gradient: unscaling and clipping in one
  float lr, decay;
  float keep;  // 1 - lr decay
  typename Rule::Scalars own;
  bool skip;  // the gradients are not finite: leave weights and states alone
};

// What the optimizer's op multiplies its gradients by. Where it takes directions in their place, those have
// been made of such products.
template <typename Rule>
TANDEM_HOST_DEVICE inline float op_grad_factor(const OptimizerStep<Rule>& step) {
  constexpr bool kTakesGradients = Rule::kEntry.granularity == Granularity::Element;
  return kTakesGradients ? step.grad_factor : 1.0f;
}

// What the learning rate and the weight decay of some parameters are multiplied by.
struct GroupFactors {
  float lr = 1, decay = 1;
  bool operator==(const GroupFactors&) const = default;
};

// From the op's inputs: hyper, whose slots entry.h lists, and norm f64[2].
template <typename Rule>
TANDEM_HOST_DEVICE inline OptimizerStep<Rule> optimizer_step(const float* hyper, const double* norm,
                                                             GroupFactors factors = {}) {
  const double clip = hyper[kHyperClip];
  const auto lr = static_cast<float>(unfused_product(hyper[kHyperLr], factors.lr));
  const auto decay = static_cast<float>(unfused_product(hyper[kHyperDecay], factors.decay));
  const double clip_factor = clip > 0 && norm[0] > clip ? clip / (norm[0] + 1e-6) : 1;
  return {.grad_factor = static_cast<float>(unfused_product(hyper[kHyperInvScale], clip_factor)),
          .lr = lr,
          .decay = decay,
          .keep = static_cast<float>(1 - unfused_product(lr, decay)),
          .own = Rule::scalars(hyper + kHyperOwn, lr, static_cast<int64_t>(hyper[kHyperStep])),
          .skip = norm[1] == 0};
}

// What a rule's definition in exact arithmetic (Rule::update) is given.
struct ExactStep {
  double lr, decay, count;
  const double* own;  // its hyper-parameters
};

}  // namespace tandem
