// Schedule-free AdamW (Defazio et al. 2024): in place of a falling learning rate, an average of the weights
// of all steps. Of the published sequences, x (the average) is the master, and z (what steps move) is kept by
// how far it is ahead of x, d = z - x; gradients are taken at y, which is the weight that passes read. In
// fp32:
//   v' = beta2 v + rest2 (g g)    y = x + share d
//   u = g / (sqrt(v') root_scale + eps) + decay y
//   e = d - lr u    x' = x + average e    d' = rest e    w' = x' + share d'
// where share is 1 - beta1, and average and rest add up to one: a step's part in the average of all.
#pragma once

#include "tandem/optimizers/step.h"

namespace tandem {

struct ScheduleFree {
  static constexpr StateTensor kStates[] = {{"lead"}, {"moment2", "zeros", Kept::Root}};
  static constexpr HyperParam kHyper[] = {
      {"train.beta1", 0.9, HyperRange::BelowOne, "share of the average in the weights that gradients are of"},
      {"train.beta2", 0.999, HyperRange::BelowOne, "decay of the gradient's square"},
      {"train.eps", 1e-8, HyperRange::Positive, "added to the square root"}};
  static constexpr OptimizerEntry kEntry{
      .name = "schedule_free_adamw", .states = kStates, .hyper = kHyper, .lr = 2.5e-3, .averages = true};

  struct Scalars {
    float share;  // 1 - beta1
    float beta2, rest2;
    float eps;
    float root_scale;  // 1 / sqrt(1 - beta2^count)
    float average, rest;
  };
  TANDEM_HOST_DEVICE static Scalars scalars(const float* own, double, int64_t count) {
    const double beta1 = own[0], beta2 = own[1], average = own[kHyperAverage - kHyperOwn];
    return {.share = static_cast<float>(1 - beta1),
            .beta2 = own[1],
            .rest2 = static_cast<float>(1 - beta2),
            .eps = own[2],
            .root_scale = static_cast<float>(1 / std::sqrt(1 - power_by_squaring(beta2, count))),
            .average = static_cast<float>(average),
            .rest = static_cast<float>(1 - average)};
  }

  // What passes read.
  static double shown(const ExactStep& step, double x, double lead) { return x + (1 - step.own[0]) * lead; }
  static double update(const ExactStep& step, double x, double g, double& lead, double& v) {
    const double beta2 = step.own[1], eps = step.own[2];
    v = beta2 * v + (1 - beta2) * g * g;
    const double square = v / (1 - std::pow(beta2, step.count));
    const double direction = g / (std::sqrt(square) + eps) + step.decay * shown(step, x, lead);
    const double moved = lead - step.lr * direction;
    lead = (1 - step.average) * moved;
    return x + step.average * moved;
  }
};

}  // namespace tandem
