// The tanh form of GELU in fp32. 0.5 (1 + tanh u) = sigmoid(2 u) = 1 / (1 + e) with e = exp(-2 u) and
// u = sqrt(2/pi) (x + 0.044715 x^3): one exponential, and nothing cancels.
#pragma once

namespace tandem::cuda {

inline constexpr float kGeluLinear = 1.59576912160573081f;  // of 2 u
inline constexpr float kGeluCubic = 0.044715f * kGeluLinear;

__device__ __forceinline__ float gelu(float x) {
  const float e = __expf(-x * fmaf(x * x, kGeluCubic, kGeluLinear));
  return x * __fdividef(1.0f, 1.0f + e);
}

// s + x s (1 - s) (2 u)' with 1 - s = e s. Beyond |x| = 10 the slope is 0 or 1 in fp32; up to there e is
// finite.
__device__ __forceinline__ float gelu_slope(float x) {
  x = x < -10.0f ? -10.0f : x > 10.0f ? 10.0f : x;  // keeps a NaN
  const float e = __expf(-x * fmaf(x * x, kGeluCubic, kGeluLinear));
  const float s = __fdividef(1.0f, 1.0f + e);
  const float slope_of_2u = fmaf(x * x, 3 * kGeluCubic, kGeluLinear);
  return fmaf(x * s * (e * s), slope_of_2u, s);
}

}  // namespace tandem::cuda
