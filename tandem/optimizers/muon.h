// Muon (Jordan et al. 2024): momentum whose singular values are all brought near one, for the matrices of
// blocks. AdamW trains the rest. In fp32, element by element:
//   m' = momentum m + rest g    u = momentum m' + rest g        (Nesterov's momentum)
// Of each whole matrix of u, in the type that weights are stored in:
//   x = u / max(|u|, eps)    5 times: a = x x^T, x' = kA x + (kB a + kC a a) x    o = scale x
// and then, element by element in fp32:
//   w' = w keep - lr o
#pragma once

#include <algorithm>

#include "tandem/optimizers/step.h"

namespace tandem {

// How a matrix's learning rate goes with its shape.
enum class MuonScale {
  MatchAdamW,  // 0.2 sqrt(max(rows, cols)): steps as large as AdamW's, so that both take one learning rate
  Original     // sqrt(max(1, rows / cols)): weights as in the first description, with rates near 0.02
};

struct Muon {
  static constexpr StateTensor kStates[] = {{"moment1"}};
  static constexpr HyperParam kHyper[] = {
      {"train.beta1", 0.9, HyperRange::BelowOne, "AdamW's, of what is no matrix of a block"},
      {"train.beta2", 0.95, HyperRange::BelowOne, "likewise"},
      {"train.eps", 1e-8, HyperRange::Positive, "likewise"},
      {"train.momentum", 0.95, HyperRange::BelowOne, "decay of the gradient's mean"}};
  static constexpr OptimizerEntry kEntry{.name = "muon",
                                         .states = kStates,
                                         .hyper = kHyper,
                                         .granularity = Granularity::Matrix,
                                         .beside = "adamw"};

  // Newton and Schulz's iteration as a polynomial of degree five, steep at zero; singular values end in
  // about [0.7, 1.2].
  static constexpr int kIterations = 5;
  static constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  static constexpr double kEps = 1e-7;

  static double scale(MuonScale how, double rows, double cols) {
    return how == MuonScale::Original ? std::sqrt(std::max(1.0, rows / cols))
                                      : 0.2 * std::sqrt(std::max(rows, cols));
  }

  struct Scalars {
    float momentum, rest;  // 1 - momentum
  };
  TANDEM_HOST_DEVICE static Scalars scalars(const float* own, double, int64_t) {
    return {own[3], static_cast<float>(1 - static_cast<double>(own[3]))};
  }

  // The direction u.
  static double direction(const double* own, double g, double& m) {
    const double momentum = own[3];
    m = momentum * m + (1 - momentum) * g;
    return momentum * m + (1 - momentum) * g;
  }
  static double update(const ExactStep& step, double w, double o) {
    return w * (1 - step.lr * step.decay) - step.lr * o;
  }
};

}  // namespace tandem
