// SGD with momentum, without dampening; decay is added to the gradient. In fp32:
//   m' = momentum m + (decay w + g)    w' = w - lr m'
#pragma once

#include "tandem/optimizers/step.h"

namespace tandem {

struct Sgd {
  static constexpr StateTensor kStates[] = {{"moment1"}};
  static constexpr HyperParam kHyper[] = {{"train.momentum", 0.9, HyperRange::BelowOne, "momentum"}};
  static constexpr OptimizerEntry kEntry{.name = "sgd", .states = kStates, .hyper = kHyper};

  struct Scalars {
    float momentum;
  };
  TANDEM_HOST_DEVICE static Scalars scalars(const float* own, double, int64_t) { return {own[0]}; }

  static double update(const ExactStep& step, double w, double g, double& m) {
    m = step.own[0] * m + g + step.decay * w;
    return w - step.lr * m;
  }
};

}  // namespace tandem
