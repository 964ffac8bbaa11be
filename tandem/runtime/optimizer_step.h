// The scalars of an AdamW or Sgd update. CPU and GPU both work them out here: an update that was offloaded to
// the CPU must give the bits of one that was not. So each operation is one whose result IEEE 754 settles,
// none is fused with another, and a power is a product of squares, since libraries differ in pow. Kernels
// treat elements alike. With g the stored gradient times grad_factor, and every operation rounded to fp32:
//   AdamW:  m' = beta1 m + rest1 g    v' = beta2 v + rest2 (g g)
//           w' = w keep - (rate m') / (sqrt(v') root_scale + eps)
//   Sgd:    m' = beta1 m + (decay w + g)    w' = w - lr m'
// A weight that does not decay has keep 1 and decay 0. Only the bits of NaNs may differ.
#pragma once

#include <cmath>
#include <cstdint>

#include "tandem/base/device_function.h"
#include "tandem/ir/op.h"

namespace tandem {

// The bias corrections of AdamW, c = 1 - beta^step, are folded into two factors.
struct OptimizerStep {
  float grad_factor;  // unscaling and clipping in one
  float lr, beta1, beta2, eps;
  float decay, keep;   // for Sgd; 1 - lr decay for AdamW
  float rest1, rest2;  // 1 - beta
  float rate;          // lr / c1
  float root_scale;    // 1 / sqrt(c2)
  bool skip;           // the gradients are not finite: leave weights and moments alone
};

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

// From the op's inputs hyper f32[kHyperSlots] and norm f64[2].
TANDEM_HOST_DEVICE inline OptimizerStep optimizer_step(const float* hyper, const double* norm) {
  const double clip = hyper[kHyperClip], lr = hyper[kHyperLr];
  const double beta1 = hyper[kHyperBeta1], beta2 = hyper[kHyperBeta2];
  const auto count = static_cast<int64_t>(hyper[kHyperStep]);
  const double clip_factor = clip > 0 && norm[0] > clip ? clip / (norm[0] + 1e-6) : 1;
  return {.grad_factor = static_cast<float>(unfused_product(hyper[kHyperInvScale], clip_factor)),
          .lr = hyper[kHyperLr],
          .beta1 = hyper[kHyperBeta1],
          .beta2 = hyper[kHyperBeta2],
          .eps = hyper[kHyperEps],
          .decay = hyper[kHyperDecay],
          .keep = static_cast<float>(1 - unfused_product(lr, hyper[kHyperDecay])),
          .rest1 = static_cast<float>(1 - beta1),
          .rest2 = static_cast<float>(1 - beta2),
          .rate = static_cast<float>(lr / (1 - power_by_squaring(beta1, count))),
          .root_scale = static_cast<float>(1 / std::sqrt(1 - power_by_squaring(beta2, count))),
          .skip = norm[1] == 0};
}

}  // namespace tandem
