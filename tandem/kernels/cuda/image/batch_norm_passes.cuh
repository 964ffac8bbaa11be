// What BatchNorm on one rank and on several share: the moments of rows, the normalised rows, and both halves
// of the gradient. With a ReLU behind the norm the gradient makes the norm's output again, in the very same
// way, to see where it was positive.
#pragma once

#include "tandem/kernels/cuda/image/channel_sums.cuh"

namespace tandem::cuda {

inline constexpr int kApplyRows = 8;  // of a thread

// The output before it is rounded; forward and gradient must agree in every bit.
__device__ __forceinline__ float batch_norm_output(float x, float mean, float rstd, float gamma, float beta) {
  return fmaf(__fsub_rn(x, mean), __fmul_rn(rstd, gamma), beta);
}

// Sums of x and x^2, both seen from the tensor's first row: numbers far from zero keep their digits.
template <typename T, int kSize>
__global__ void __launch_bounds__(kChannelThreads)
    moment_sums(const T* x, int64_t rows, int64_t channels, int64_t split_rows, double* partials) {
  const int64_t channel = own_channel<kSize>();
  const int64_t begin = blockIdx.x * split_rows, end = min(begin + split_rows, rows);
  double first[kSize] = {}, second[kSize] = {};
  if (channel < channels && begin + threadIdx.y < end) {
    float origin[kSize], own[kSize], sum[kSize] = {}, squares[kSize] = {};
    load_floats(x + channel, origin);
    load_floats(x + (begin + threadIdx.y) * channels + channel, own);
    double count = 0;
    for_own_rows<kSize>(
        begin, end, [&](int64_t row) { return load_group<kSize>(x + row * channels + channel); },
        [&](int64_t, const Group<T, kSize>& group) {
          count += 1;
#pragma unroll
          for (int k = 0; k < kSize; ++k) {
            const float distance = to_float(group.value[k]) - own[k];
            sum[k] += distance;
            squares[k] = fmaf(distance, distance, squares[k]);
          }
        });
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      const double shift = static_cast<double>(own[k]) - static_cast<double>(origin[k]);
      first[k] = static_cast<double>(sum[k]) + count * shift;
      second[k] = static_cast<double>(squares[k]) + shift * (2 * static_cast<double>(sum[k]) + count * shift);
    }
  }
  write_partials(first, second, channels, partials);
}

// What moment_sums' sums say of a channel.
struct ChannelMoments {
  double mean, m2;  // m2: the sum of squared distances from the mean
};
__device__ __forceinline__ ChannelMoments moments_of(double origin, double rows, double first,
                                                     double second) {
  const double m2 = second - first * first / rows;
  return {origin + first / rows, m2 < 0 ? 0 : m2};  // a NaN stays one
}

// y = norm(x), or with kRelu the ReLU of it, or of its sum with the residual; each is rounded on its way.
template <typename T, int kSize, bool kRelu>
__global__ void __launch_bounds__(kChannelThreads)
    normalise_rows(const T* x, const T* gamma, const T* beta, const float* mean, const float* rstd,
                   const T* residual, T* y, int64_t rows, int64_t channels) {
  const int64_t channel = own_channel<kSize>();
  if (channel >= channels) return;
  float scale[kSize], shift[kSize], center[kSize], inverse[kSize];
  load_floats(gamma + channel, scale);
  load_floats(beta + channel, shift);
#pragma unroll
  for (int k = 0; k < kSize; ++k) center[k] = mean[channel + k], inverse[k] = rstd[channel + k];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * blockDim.y * kApplyRows;
  const int64_t end = min(begin + static_cast<int64_t>(blockDim.y) * kApplyRows, rows);
  struct Loaded {
    Group<T, kSize> x, residual;
  };
  for_own_rows<kSize>(
      begin, end,
      [&](int64_t row) {
        Loaded loaded;
        loaded.x = load_group<kSize>(x + row * channels + channel);
        if (kRelu && residual != nullptr)
          loaded.residual = load_group<kSize>(residual + row * channels + channel);
        return loaded;
      },
      [&](int64_t row, const Loaded& loaded) {
        Group<T, kSize> out;
#pragma unroll
        for (int k = 0; k < kSize; ++k) {
          T value = from_float<T>(
              batch_norm_output(to_float(loaded.x.value[k]), center[k], inverse[k], scale[k], shift[k]));
          if constexpr (kRelu) {
            if (residual != nullptr)
              value = from_float<T>(to_float(value) + to_float(loaded.residual.value[k]));
            if (to_float(value) < 0) value = from_float<T>(0.0f);
          }
          out.value[k] = value;
        }
        store_group(y + row * channels + channel, out);
      });
}

// What the gradient passes read; gamma and beta only where a ReLU stands behind the norm.
template <typename T>
struct BatchGradCall {
  const T *dy, *x, *gamma, *beta;
  const float *mean, *rstd;
  int64_t rows, channels;
};

// The channels of one thread, and what of dy gets through the ReLU.
template <typename T, int kSize, bool kRelu>
struct OwnChannels {
  float mean[kSize], rstd[kSize], gamma[kSize], beta[kSize];

  __device__ OwnChannels(const BatchGradCall<T>& call, int64_t channel) {
    if constexpr (kRelu) {
      load_floats(call.gamma + channel, gamma);
      load_floats(call.beta + channel, beta);
    }
#pragma unroll
    for (int k = 0; k < kSize; ++k) mean[k] = call.mean[channel + k], rstd[k] = call.rstd[channel + k];
  }
  __device__ float gradient(int k, T dy, float x) const {
    if constexpr (kRelu) {
      const T y = from_float<T>(batch_norm_output(x, mean[k], rstd[k], gamma[k], beta[k]));
      if (!(to_float(y) > 0)) return 0;
    }
    return to_float(dy);
  }
};

template <typename T, int kSize>
struct GradRow {
  Group<T, kSize> dy, x;
};
template <typename T, int kSize>
__device__ __forceinline__ GradRow<T, kSize> load_grad_row(const BatchGradCall<T>& call, int64_t at) {
  return {load_group<kSize>(call.dy + at), load_group<kSize>(call.x + at)};
}

// Sums of dy and of dy * x_hat.
template <typename T, int kSize, bool kRelu>
__global__ void __launch_bounds__(kChannelThreads)
    grad_sums(const BatchGradCall<T> call, int64_t split_rows, double* partials) {
  const int64_t channel = own_channel<kSize>();
  const int64_t begin = blockIdx.x * split_rows, end = min(begin + split_rows, call.rows);
  double first[kSize] = {}, second[kSize] = {};
  if (channel < call.channels) {
    const OwnChannels<T, kSize, kRelu> own(call, channel);
    float sum[kSize] = {}, weighted[kSize] = {};
    for_own_rows<kSize>(
        begin, end, [&](int64_t row) { return load_grad_row<T, kSize>(call, row * call.channels + channel); },
        [&](int64_t, const GradRow<T, kSize>& row) {
#pragma unroll
          for (int k = 0; k < kSize; ++k) {
            const float x = to_float(row.x.value[k]), dy = own.gradient(k, row.dy.value[k], x);
            sum[k] += dy;
            weighted[k] = fmaf(dy, (x - own.mean[k]) * own.rstd[k], weighted[k]);
          }
        });
#pragma unroll
    for (int k = 0; k < kSize; ++k) first[k] = sum[k], second[k] = weighted[k];
  }
  write_partials(first, second, call.channels, partials);
}

// dx = a dy + b (x - mean) + c, as three coefficients a channel: [3][channels].
template <typename T, int kSize, bool kRelu>
__global__ void __launch_bounds__(kChannelThreads)
    grad_rows(const BatchGradCall<T> call, const float* coefficients, T* dx) {
  const int64_t channel = own_channel<kSize>();
  if (channel >= call.channels) return;
  const OwnChannels<T, kSize, kRelu> own(call, channel);
  float a[kSize], b[kSize], c[kSize];
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    a[k] = coefficients[channel + k];
    b[k] = coefficients[call.channels + channel + k];
    c[k] = coefficients[2 * call.channels + channel + k];
  }
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * blockDim.y * kApplyRows;
  const int64_t end = min(begin + static_cast<int64_t>(blockDim.y) * kApplyRows, call.rows);
  for_own_rows<kSize>(
      begin, end, [&](int64_t row) { return load_grad_row<T, kSize>(call, row * call.channels + channel); },
      [&](int64_t row, const GradRow<T, kSize>& loaded) {
        Group<T, kSize> out;
#pragma unroll
        for (int k = 0; k < kSize; ++k) {
          const float x = to_float(loaded.x.value[k]), dy = own.gradient(k, loaded.dy.value[k], x);
          out.value[k] = from_float<T>(fmaf(dy, a[k], fmaf(x - own.mean[k], b[k], c[k])));
        }
        store_group(dx + row * call.channels + channel, out);
      });
}

// gamma rstd (dy - mean of dy - x_hat mean of dy x_hat), with the sums over `count` rows.
template <typename T>
struct GradCoefficients {
  const T* gamma;
  const float* rstd;
  float* to;  // [3][channels]
  double count;
  int64_t channels;

  __device__ void write(int64_t channel, double sum_dy, double sum_dyx) const {
    const double inverse = rstd[channel], slope = inverse * static_cast<double>(to_float(gamma[channel]));
    to[channel] = static_cast<float>(slope);
    to[channels + channel] = static_cast<float>(-slope * inverse * sum_dyx / count);
    to[2 * channels + channel] = static_cast<float>(-slope * sum_dy / count);
  }
};

// --- launches -------------------------------------------------------------------------------------------
inline int64_t apply_blocks(int64_t rows, const dim3& block) {
  return ceil_div(rows, static_cast<int64_t>(block.y) * kApplyRows);
}

inline void launch_moment_sums(const TensorArg& x, const ChannelCut& cut, double* partials,
                               cudaStream_t queue) {
  for_channel_groups(x.type.dtype, cut.channels, {x.data}, [&]<typename T>(T*, auto size) {
    const ChannelLaunch launch = channel_launch(cut.splits, cut.channels, size);
    moment_sums<T, size><<<launch.grid, launch.block, 0, queue>>>(x.as<T>(), cut.rows, cut.channels,
                                                                  cut.split_rows, partials);
  });
  check_launch("moment_sums");
}

struct NormaliseCall {
  const TensorArg &x, &gamma, &beta, &y;
  const float *mean, *rstd;
  const void* residual;  // or null
  bool relu;
};
inline void launch_normalise(const NormaliseCall& call, cudaStream_t queue) {
  const int64_t rows = call.x.type.shape.rows(), channels = call.x.type.shape.last();
  for_channel_groups(
      call.x.type.dtype, channels, {call.x.data, call.gamma.data, call.beta.data, call.residual, call.y.data},
      [&]<typename T>(T*, auto size) {
        ChannelLaunch launch = channel_launch(1, channels, size);
        launch.grid.x = static_cast<unsigned>(apply_blocks(rows, launch.block));
        const auto kernel = call.relu ? normalise_rows<T, size, true> : normalise_rows<T, size, false>;
        kernel<<<launch.grid, launch.block, 0, queue>>>(
            call.x.as<T>(), call.gamma.as<T>(), call.beta.as<T>(), call.mean, call.rstd,
            static_cast<const T*>(call.residual), call.y.as<T>(), rows, channels);
      });
  check_launch("normalise_rows");
}

template <typename T, int kSize>
void launch_grad_sums(const BatchGradCall<T>& call, const ChannelCut& cut, double* partials,
                      cudaStream_t queue) {
  const ChannelLaunch launch = channel_launch(cut.splits, cut.channels, kSize);
  const auto kernel = call.beta != nullptr ? grad_sums<T, kSize, true> : grad_sums<T, kSize, false>;
  kernel<<<launch.grid, launch.block, 0, queue>>>(call, cut.split_rows, partials);
  check_launch("grad_sums");
}

template <typename T, int kSize>
void launch_grad_rows(const BatchGradCall<T>& call, const float* coefficients, T* dx, cudaStream_t queue) {
  ChannelLaunch launch = channel_launch(1, call.channels, kSize);
  launch.grid.x = static_cast<unsigned>(apply_blocks(call.rows, launch.block));
  const auto kernel = call.beta != nullptr ? grad_rows<T, kSize, true> : grad_rows<T, kSize, false>;
  kernel<<<launch.grid, launch.block, 0, queue>>>(call, coefficients, dx);
  check_launch("grad_rows");
}

}  // namespace tandem::cuda
