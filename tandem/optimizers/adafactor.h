// Adafactor (Shazeer and Stern 2018), with the numbers of torch.optim.Adafactor: the mean of a matrix's
// squared gradients is kept by its rows and its columns. With `share` the step's part in means of all steps,
// count^beta2_decay:
//   r' = r + share (mean of g g over each row - r)    c' = c + share (mean over each column - c)
//   u = g / sqrt(max(r' c' / max(mean of r', kEps), kEps^2))
// of a vector: v' = v + share (g g - v), u = g / sqrt(max(v', kEps^2)). And then, element by element in fp32,
//   w' = w keep - trust u
// where trust is min(lr, 1 / sqrt(count)) max(eps, rms of w) / max(1, rms of u / clip), of whole parameters.
#pragma once

#include <algorithm>

#include "tandem/optimizers/step.h"

namespace tandem {

struct Adafactor {
  static constexpr StateTensor kStates[] = {{"moment2", "zeros", Kept::Root}};
  static constexpr HyperParam kHyper[] = {
      {"train.beta2_decay", -0.8, HyperRange::Negative,
       "power of the step's number that is its share in the means of squares"},
      {"train.eps", 1e-3, HyperRange::Positive, "smallest size of weights that a step is a share of"},
      {"train.update_clip", 1.0, HyperRange::Positive, "largest root mean square of a step over its rate"}};
  static constexpr OptimizerEntry kEntry{.name = "adafactor",
                                         .states = kStates,
                                         .hyper = kHyper,
                                         .lr = 1e-2,
                                         .granularity = Granularity::Tensor,
                                         .factored = true};
  static constexpr double kEps = 0x1p-23;  // fp32's

  struct Scalars {
    float rho;  // min(lr, 1 / sqrt(count))
    float eps, clip;
    float share;
    float trust = 1;
  };
  TANDEM_HOST_DEVICE static Scalars scalars(const float* own, double lr, int64_t count) {
    const double most = 1 / std::sqrt(static_cast<double>(count));
    return {.rho = static_cast<float>(lr < most ? lr : most),
            .eps = own[1],
            .clip = own[2],
            .share = own[kHyperAverage - kHyperOwn]};
  }

  // Of the means of squares of w and of u.
  TANDEM_HOST_DEVICE static double trust(const Scalars& own, double, double w, double u) {
    const double size = std::sqrt(w), excess = std::sqrt(u) / own.clip;
    return unfused_product(own.rho, size > own.eps ? size : own.eps) / (excess > 1 ? excess : 1);
  }

  // What a gradient is multiplied by; `mean` is of the matrix's rows.
  static double root_of(double row, double col, double mean) {
    return 1 / std::sqrt(std::max(row * col / std::max(mean, kEps), kEps * kEps));
  }
  static double root_of(double square) { return 1 / std::sqrt(std::max(square, kEps * kEps)); }

  // What the second norm is of; the first is the weight's.
  static double measured(const ExactStep&, double, double u) { return u; }
  static double update(const ExactStep& step, double w, double u) {
    return w * (1 - step.lr * step.decay) - step.trust * u;
  }
};

}  // namespace tandem
