// LARS, SGD with layer-wise rates for large batches (You et al. 2017): the gradient of a matrix is scaled to
// a share of the weight's norm. In fp32:
//   m' = momentum m + trust (decay w + g)    w' = w - lr m'
// where trust is coefficient |w| / (|g| + decay |w| + eps), norms of the whole parameter, and 1 where one of
// them is zero or the parameter does not decay (norms and biases).
#pragma once

#include "tandem/optimizers/step.h"

namespace tandem {

struct Lars {
  static constexpr StateTensor kStates[] = {{"moment1"}};
  static constexpr HyperParam kHyper[] = {
      {"train.momentum", 0.9, HyperRange::BelowOne, "momentum"},
      {"train.trust", 1e-3, HyperRange::Positive,
       "share of a matrix's norm that a step with lr 1 moves it by"},
      {"train.eps", 1e-8, HyperRange::Positive, "added to the norms that are divided by"}};
  static constexpr OptimizerEntry kEntry{
      .name = "lars", .states = kStates, .hyper = kHyper, .lr = 1, .granularity = Granularity::Tensor};

  struct Scalars {
    float momentum, coefficient, eps;
    float trust = 1;  // of what decays
  };
  TANDEM_HOST_DEVICE static Scalars scalars(const float* own, double, int64_t) {
    return {own[0], own[1], own[2]};
  }

  // Of the sums of squares of w and of g.
  TANDEM_HOST_DEVICE static double trust(const Scalars& own, double decay, double w, double g) {
    if (!(w > 0 && g > 0)) return 1;
    const double norm = std::sqrt(w);
    return unfused_product(own.coefficient, norm) / (std::sqrt(g) + unfused_product(decay, norm) + own.eps);
  }

  // What the second norm is of; the first is the weight's.
  static double measured(const ExactStep&, double, double g, double) { return g; }
  static double update(const ExactStep& step, double w, double g, double& m) {
    m = step.own[0] * m + step.trust * (g + step.decay * w);
    return w - step.lr * m;
  }
};

}  // namespace tandem
