// LAMB, AdamW with layer-wise rates for large batches (You et al. 2020): a matrix moves by a share of its own
// norm, whatever the size of its gradient. In fp32:
//   m' = beta1 m + rest1 g    v' = beta2 v + rest2 (g g)
//   u = (mean_scale m') / (sqrt(v') root_scale + eps) + decay w
//   w' = w - (lr trust) u
// where trust is |w| / |u|, norms of the whole parameter as it was, and 1 where one of them is zero or the
// parameter does not decay (norms and biases).
#pragma once

#include "tandem/optimizers/step.h"

namespace tandem {

struct Lamb {
  static constexpr StateTensor kStates[] = {{"moment1", "zeros", Kept::Share},
                                            {"moment2", "zeros", Kept::Root}};
  static constexpr HyperParam kHyper[] = {
      {"train.beta1", 0.9, HyperRange::BelowOne, "decay of the gradient's mean"},
      {"train.beta2", 0.999, HyperRange::BelowOne, "decay of the gradient's square"},
      {"train.eps", 1e-6, HyperRange::Positive, "added to the square root"}};
  static constexpr OptimizerEntry kEntry{
      .name = "lamb", .states = kStates, .hyper = kHyper, .granularity = Granularity::Tensor};

  // The bias corrections, c = 1 - beta^count, are factors.
  struct Scalars {
    float beta1, rest1;  // 1 - beta
    float beta2, rest2;
    float eps;
    float mean_scale;  // 1 / c1
    float root_scale;  // 1 / sqrt(c2)
    float trust = 1;   // |w| / |u|, of what decays
  };
  TANDEM_HOST_DEVICE static Scalars scalars(const float* own, double, int64_t count) {
    const double beta1 = own[0], beta2 = own[1];
    return {.beta1 = own[0],
            .rest1 = static_cast<float>(1 - beta1),
            .beta2 = own[1],
            .rest2 = static_cast<float>(1 - beta2),
            .eps = own[2],
            .mean_scale = static_cast<float>(1 / (1 - power_by_squaring(beta1, count))),
            .root_scale = static_cast<float>(1 / std::sqrt(1 - power_by_squaring(beta2, count)))};
  }

  // Of the sums of squares of w and of u.
  TANDEM_HOST_DEVICE static double trust(const Scalars&, double, double w, double u) {
    return w > 0 && u > 0 ? std::sqrt(w) / std::sqrt(u) : 1;
  }

  static double direction(const ExactStep& step, double w, double g, double& m, double& v) {
    const double beta1 = step.own[0], beta2 = step.own[1], eps = step.own[2];
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double mean = m / (1 - std::pow(beta1, step.count));
    const double square = v / (1 - std::pow(beta2, step.count));
    return mean / (std::sqrt(square) + eps) + step.decay * w;
  }
  // What the second norm is of; the first is the weight's.
  static double measured(const ExactStep& step, double w, double g, double m, double v) {
    return direction(step, w, g, m, v);
  }
  static double update(const ExactStep& step, double w, double g, double& m, double& v) {
    return w - step.lr * step.trust * direction(step, w, g, m, v);
  }
};

}  // namespace tandem
