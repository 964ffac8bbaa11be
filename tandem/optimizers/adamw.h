// AdamW: Adam whose weight decay is apart from the gradient (Loshchilov and Hutter 2019). In fp32:
//   m' = beta1 m + rest1 g    v' = beta2 v + rest2 (g g)
//   w' = w keep - (rate m') / (sqrt(v') root_scale + eps)
#pragma once

#include "tandem/optimizers/step.h"

namespace tandem {

struct AdamW {
  static constexpr StateTensor kStates[] = {{"moment1", "zeros", Kept::Share},
                                            {"moment2", "zeros", Kept::Root}};
  static constexpr HyperParam kHyper[] = {
      {"train.beta1", 0.9, HyperRange::BelowOne, "decay of the gradient's mean"},
      {"train.beta2", 0.95, HyperRange::BelowOne, "decay of the gradient's square"},
      {"train.eps", 1e-8, HyperRange::Positive, "added to the square root"}};
  static constexpr OptimizerEntry kEntry{.name = "adamw", .states = kStates, .hyper = kHyper};

  // The bias corrections, c = 1 - beta^count, are folded into two factors.
  struct Scalars {
    float beta1, rest1;  // 1 - beta
    float beta2, rest2;
    float eps;
    float rate;        // lr / c1
    float root_scale;  // 1 / sqrt(c2)
  };
  TANDEM_HOST_DEVICE static Scalars scalars(const float* own, double lr, int64_t count) {
    const double beta1 = own[0], beta2 = own[1];
    return {.beta1 = own[0],
            .rest1 = static_cast<float>(1 - beta1),
            .beta2 = own[1],
            .rest2 = static_cast<float>(1 - beta2),
            .eps = own[2],
            .rate = static_cast<float>(lr / (1 - power_by_squaring(beta1, count))),
            .root_scale = static_cast<float>(1 / std::sqrt(1 - power_by_squaring(beta2, count)))};
  }

  static double update(const ExactStep& step, double w, double g, double& m, double& v) {
    const double beta1 = step.own[0], beta2 = step.own[1], eps = step.own[2];
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double mean = m / (1 - std::pow(beta1, step.count));
    const double square = v / (1 - std::pow(beta2, step.count));
    return w * (1 - step.lr * step.decay) - step.lr * mean / (std::sqrt(square) + eps);
  }
};

}  // namespace tandem
