// Lion, evolved sign momentum (Chen et al. 2023): every weight moves by the learning rate, or not at all. It
// wants a smaller learning rate than AdamW (3 to 10 times) and as much more decay. In fp32:
//   c = beta1 m + rest1 g    w' = w keep - lr sign(c)    m' = beta2 m + rest2 g
#pragma once

#include "tandem/optimizers/step.h"

namespace tandem {

struct Lion {
  static constexpr StateTensor kStates[] = {{"moment1"}};
  static constexpr HyperParam kHyper[] = {
      {"train.beta1", 0.9, HyperRange::BelowOne, "share of the mean in the step's direction"},
      {"train.beta2", 0.99, HyperRange::BelowOne, "decay of the gradient's mean"}};
  static constexpr OptimizerEntry kEntry{.name = "lion", .states = kStates, .hyper = kHyper, .lr = 1e-4};

  struct Scalars {
    float beta1, rest1;  // 1 - beta
    float beta2, rest2;
  };
  TANDEM_HOST_DEVICE static Scalars scalars(const float* own, double, int64_t) {
    const double beta1 = own[0], beta2 = own[1];
    return {own[0], static_cast<float>(1 - beta1), own[1], static_cast<float>(1 - beta2)};
  }

  static double update(const ExactStep& step, double w, double g, double& m) {
    const double beta1 = step.own[0], beta2 = step.own[1];
    const double c = beta1 * m + (1 - beta1) * g;
    m = beta2 * m + (1 - beta2) * g;
    return w * (1 - step.lr * step.decay) - (c == 0 ? 0 : std::copysign(step.lr, c));
  }
};

}  // namespace tandem
