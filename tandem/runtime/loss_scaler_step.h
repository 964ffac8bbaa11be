// How a step brings the loss scale of fp16 up to date. CPU and GPU both do it here, and to the same bits:
// scales are only ever halved and doubled, and quotients are rounded as IEEE 754 says.
#pragma once

#include <cstdint>

#include "tandem/base/device_function.h"
#include "tandem/ir/op.h"

namespace tandem {

inline constexpr double kMinLossScale = 1;
inline constexpr double kMaxLossScale = 16777216;  // 2^24

// The ops' inputs: `scaler` f64[kScalerSlots], `norm` f64[2].
TANDEM_HOST_DEVICE inline float scale_loss(float scale, const double* scaler) {
  return static_cast<float>(scale * scaler[kScalerScale]);
}

TANDEM_HOST_DEVICE inline float inverse_loss_scale(const double* scaler) {
  return static_cast<float>(1 / scaler[kScalerScale]);
}

TANDEM_HOST_DEVICE inline void next_loss_scale(double* scaler, const double* norm, int64_t window) {
  double &scale = scaler[kScalerScale], &good_steps = scaler[kScalerGoodSteps];
  const bool finite = norm[1] != 0;
  good_steps = finite ? good_steps + 1 : 0;
  if (!finite) {
    scale = scale / 2 > kMinLossScale ? scale / 2 : kMinLossScale;
  } else if (good_steps >= static_cast<double>(window)) {
    scale = scale * 2 < kMaxLossScale ? scale * 2 : kMaxLossScale;
    good_steps = 0;
  }
}

}  // namespace tandem
