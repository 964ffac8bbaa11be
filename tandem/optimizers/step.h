// The scalars of an update. CPU and GPU both work them out here: an update that was offloaded to the CPU must
// give the bits of one that was not. So each operation is one whose result IEEE 754 settles, none is fused
// with another, and a power is a product of squares, since libraries differ in pow. Kernels treat elements
// alike: what a rule's header says, every operation rounded to fp32, with g the stored gradient times
// grad_factor. A weight that does not decay has keep 1 and decay 0. Only the bits of NaNs may differ.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

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

inline constexpr float kNeverClipped = std::numeric_limits<float>::infinity();

// Of a rule (adamw.h): what all have, and what it makes of its own hyper-parameters.
template <typename Rule>
struct OptimizerStep {
  float grad_factor;  // of the gradient: unscaling and clipping by the norm in one
  float largest;      // magnitude of a gradient's element after that; infinite where they are not clipped
  float lr, decay;
  float keep;  // 1 - lr decay
  typename Rule::Scalars own;
  bool skip;      // the gradients are not finite: leave weights and states alone
  int64_t elems;  // of the whole parameter, where the rule reads means over it
};

// What the optimizer's op multiplies its gradients by. Where it takes directions in their place, those have
// been made of such products.
template <typename Rule>
TANDEM_HOST_DEVICE inline float op_grad_factor(const OptimizerStep<Rule>& step) {
  return Rule::kEntry.takes_directions() ? 1.0f : step.grad_factor;
}
// Likewise, the largest magnitude of what it then takes.
template <typename Rule>
TANDEM_HOST_DEVICE inline float op_largest(const OptimizerStep<Rule>& step) {
  return Rule::kEntry.takes_directions() ? kNeverClipped : step.largest;
}

// What the learning rate and the weight decay of some parameters are multiplied by, and how many elements
// each of them has, where the rule reads means over whole ones.
struct GroupFactors {
  float lr = 1, decay = 1;
  int64_t elems = 1;
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
          .largest = hyper[kHyperClipValue] > 0 ? hyper[kHyperClipValue] : kNeverClipped,
          .lr = lr,
          .decay = decay,
          .keep = static_cast<float>(1 - unfused_product(lr, decay)),
          .own = Rule::scalars(hyper + kHyperOwn, lr, static_cast<int64_t>(hyper[kHyperStep])),
          .skip = norm[1] == 0,
          .elems = factors.elems};
}

// The step of one parameter, where the rule reads norms of whole ones: `sums` has two sums of squares for
// each slot. LAMB and LARS trust them for what decays only.
template <typename Rule>
TANDEM_HOST_DEVICE inline OptimizerStep<Rule> with_trust(OptimizerStep<Rule> step, const double* sums,
                                                         int64_t slot, bool decayed) {
  if constexpr (Rule::kEntry.granularity == Granularity::Tensor) {
    const auto elems = static_cast<double>(step.elems);
    if (decayed || Rule::kEntry.factored)
      step.own.trust = static_cast<float>(
          Rule::trust(step.own, step.decay, sums[2 * slot] / elems, sums[2 * slot + 1] / elems));
  }
  return step;
}

// What a rule's definition in exact arithmetic (Rule::update) is given.
struct ExactStep {
  double lr, decay, count;
  const double* own;  // its hyper-parameters
  // Of a rule that reads norms of the whole parameter (Granularity::Tensor): what its trust() makes of them.
  double trust = 1;
  double average = 0;  // of a rule that averages: this step's share
};

}  // namespace tandem
