// The arithmetic of SwiGLU, shared by the kernels that compute it so that all give the same bits.
#pragma once

#include "tandem/kernels/cuda/elements.cuh"

namespace tandem::cuda {

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

__device__ __forceinline__ float swiglu_of(float gate, float up) { return gate * sigmoid(gate) * up; }

struct GatedSlopes {
  float gate, up;
};
// With s = sigmoid(g): d silu / dg = s (1 + g (1 - s)).
__device__ __forceinline__ GatedSlopes swiglu_slopes(float dy, float gate, float up) {
  const float s = sigmoid(gate);
  return {dy * up * s * fmaf(gate, 1.0f - s, 1.0f), dy * gate * s};
}

}  // namespace tandem::cuda
