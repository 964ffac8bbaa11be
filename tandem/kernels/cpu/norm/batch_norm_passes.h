// Passes over rows of a [rows, channels] tensor that batch and group normalisation share: group
// normalisation is batch normalisation of one image with its per-group figures spread over the channels.
// Each runs on the calling thread; `scratch` holds 2 * channels floats.
#pragma once

#include <cstdint>

#include "tandem/base/dtype.h"

namespace tandem::cpu {

// Mean and sum of squared deviations from it, per channel. Two passes over a cached block of rows, blocks
// merged by Chan's rule in double: a mean far larger than the deviation cancels nothing.
void channel_moments(DType dtype, const void* x, int64_t rows, int64_t channels, float* scratch, double* mean,
                     double* m2);

// Merges the moments of `count_b` further rows into those of `count` rows.
void merge_moments(int64_t channels, double count, double* mean, double* m2, double count_b,
                   const double* mean_b, const double* m2_b);

// y = (x - mean) * scale + shift
void channel_normalise(DType dtype, const void* x, int64_t rows, int64_t channels, const float* mean,
                       const float* scale, const float* shift, void* y);

// Sets sum_dy = sum of dy, sum_dyx = sum of dy * (x - mean), per channel.
void channel_grad_sums(DType dtype, const void* dy, const void* x, int64_t rows, int64_t channels,
                       const float* mean, float* scratch, double* sum_dy, double* sum_dyx);

// dx = a * dy + b * (x - mean) + c
struct GradCoefficients {
  const float* mean;
  const float* a;
  const float* b;
  const float* c;
};
void channel_grad_apply(DType dtype, const void* dy, const void* x, int64_t rows, int64_t channels,
                        const GradCoefficients& k, void* dx);

}  // namespace tandem::cpu
