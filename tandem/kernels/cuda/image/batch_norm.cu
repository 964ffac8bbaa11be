// BatchNorm over [rows, channels], on one rank and over the rows of several.
#include "tandem/kernels/cuda/image/batch_norm_passes.cuh"
#include "tandem/kernels/cuda/image/image_kernels.h"
#include "tandem/runtime/storage.h"

namespace tandem::cuda {
namespace {

// Sums of blocks, then three figures a channel.
struct Scratch {
  double* partials;
  float* figures;

  Scratch(const KernelArgs& args, const ChannelCut& cut)
      : partials(reinterpret_cast<double*>(args.workspace.data())),
        figures(reinterpret_cast<float*>(args.workspace.data() + cut.partial_bytes())) {
    TANDEM_CHECK(args.workspace.size() >= bytes(cut), "{} bytes of workspace", args.workspace.size());
  }
  static size_t bytes(const ChannelCut& cut) {
    return cut.partial_bytes() + static_cast<size_t>(3 * cut.channels) * sizeof(float);
  }
};

// x is the first input of forward ops, and the second of gradients, where it has the same shape.
size_t workspace(const CallSignature& call, int) { return Scratch::bytes(ChannelCut(call.in[0].shape)); }

// --- forward --------------------------------------------------------------------------------------------
// The statistics of all rows, and the running ones, which take the unbiased variance.
struct Statistics {
  float *mean, *rstd, *running_mean, *running_var;
  double eps, momentum, count;

  __device__ void write(int channel, double center, double m2) const {
    mean[channel] = static_cast<float>(center);
    rstd[channel] = static_cast<float>(1 / sqrt(m2 / count + eps));
    const double unbiased = m2 / fmax(count - 1, 1.0);
    running_mean[channel] =
        static_cast<float>((1 - momentum) * static_cast<double>(running_mean[channel]) + momentum * center);
    running_var[channel] =
        static_cast<float>((1 - momentum) * static_cast<double>(running_var[channel]) + momentum * unbiased);
  }
};

template <typename T>
struct FinishMoments {
  Statistics to;
  const T* origin;
  __device__ void operator()(int channel, double first, double second) const {
    const ChannelMoments moments =
        moments_of(static_cast<double>(to_float(origin[channel])), to.count, first, second);
    to.write(channel, moments.mean, moments.m2);
  }
};

template <typename T>
struct FinishParts {
  float* parts;  // [2][channels]
  const T* origin;
  double rows;
  int channels;
  __device__ void operator()(int channel, double first, double second) const {
    const ChannelMoments moments =
        moments_of(static_cast<double>(to_float(origin[channel])), rows, first, second);
    parts[channel] = static_cast<float>(moments.mean);
    parts[channels + channel] = static_cast<float>(moments.m2);
  }
};

Statistics statistics_of(const KernelArgs& args, int64_t count) {
  return {.mean = args.out[1].as<float>(),
          .rstd = args.out[2].as<float>(),
          .running_mean = args.out[3].as<float>(),
          .running_var = args.out[4].as<float>(),
          .eps = args.attrs.real("eps"),
          .momentum = args.attrs.real("momentum"),
          .count = static_cast<double>(count)};
}

// The rows of x by these statistics; the residual is the sixth input, where there is one.
void normalise(const KernelArgs& args, const float* mean, const float* rstd, bool may_add,
               cudaStream_t queue) {
  launch_normalise({.x = args.in[0],
                    .gamma = args.in[1],
                    .beta = args.in[2],
                    .y = args.out[0],
                    .mean = mean,
                    .rstd = rstd,
                    .residual = may_add && args.in.size() > 5 ? args.in[5].data : nullptr,
                    .relu = args.attrs.integer_or("relu", 0) != 0},
                   queue);
}

void run_batch_norm(const KernelArgs& args, Stream& stream) {
  const ChannelCut cut(args.in[0].type.shape);
  const Scratch scratch(args, cut);
  const Statistics to = statistics_of(args, cut.rows);
  launch_moment_sums(args.in[0], cut, scratch.partials, queue_of(stream));
  for_storage(args.in[0].type.dtype, [&]<typename T>(T*) {
    launch_finish(cut, scratch.partials, FinishMoments<T>{to, args.in[0].as<T>()}, queue_of(stream));
  });
  normalise(args, to.mean, to.rstd, /*may_add=*/true, queue_of(stream));
}

__global__ void __launch_bounds__(kChannelThreads)
    invert_deviations(const float* variance, double eps, int channels, float* rstd) {
  const int channel = static_cast<int>(blockIdx.x * kChannelThreads + threadIdx.x);
  if (channel < channels)
    rstd[channel] = static_cast<float>(1 / sqrt(static_cast<double>(variance[channel]) + eps));
}

void run_batch_norm_infer(const KernelArgs& args, Stream& stream) {
  const ChannelCut cut(args.in[0].type.shape);
  const Scratch scratch(args, cut);
  const auto blocks = static_cast<unsigned>(ceil_div(cut.channels, kChannelThreads));
  invert_deviations<<<blocks, kChannelThreads, 0, queue_of(stream)>>>(
      args.in[4].as<float>(), args.attrs.real("eps"), static_cast<int>(cut.channels), scratch.figures);
  check_launch("batch_norm_infer");
  normalise(args, args.in[3].as<float>(), scratch.figures, /*may_add=*/true, queue_of(stream));
}

void run_batch_norm_stats(const KernelArgs& args, Stream& stream) {
  const ChannelCut cut(args.in[0].type.shape);
  const Scratch scratch(args, cut);
  launch_moment_sums(args.in[0], cut, scratch.partials, queue_of(stream));
  for_storage(args.in[0].type.dtype, [&]<typename T>(T*) {
    const FinishParts<T> finish{args.out[0].as<float>(), args.in[0].as<T>(), static_cast<double>(cut.rows),
                                static_cast<int>(cut.channels)};
    launch_finish(cut, scratch.partials, finish, queue_of(stream));
  });
}

// The distances of all rows from the common mean are those from each rank's, and those between the means.
__global__ void __launch_bounds__(kChannelThreads)
    combine_ranks(const float* parts, int ranks, double rank_rows, int channels, const Statistics to) {
  const int channel = static_cast<int>(blockIdx.x * kChannelThreads + threadIdx.x);
  if (channel >= channels) return;
  double mean = 0, m2 = 0;
  for (int rank = 0; rank < ranks; ++rank)
    mean += static_cast<double>(parts[int64_t{2} * rank * channels + channel]) / ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    const float* part = parts + int64_t{2} * rank * channels;
    const double distance = static_cast<double>(part[channel]) - mean;
    m2 += static_cast<double>(part[channels + channel]) + rank_rows * distance * distance;
  }
  to.write(channel, mean, m2);
}

void run_batch_norm_apply(const KernelArgs& args, Stream& stream) {
  const Shape& x = args.in[0].type.shape;
  const int64_t ranks = args.attrs.integer("size");
  const Statistics to = statistics_of(args, ranks * x.rows());
  const auto blocks = static_cast<unsigned>(ceil_div(x.last(), kChannelThreads));
  combine_ranks<<<blocks, kChannelThreads, 0, queue_of(stream)>>>(
      args.in[5].as<float>(), static_cast<int>(ranks), static_cast<double>(x.rows()),
      static_cast<int>(x.last()), to);
  check_launch("batch_norm_apply");
  normalise(args, to.mean, to.rstd, /*may_add=*/false, queue_of(stream));
}

// --- gradient -------------------------------------------------------------------------------------------
struct Accumulators {
  float *dgamma, *dbeta;
  bool fresh;

  __device__ void add(int channel, float sum_dy, float sum_dyx) const {
    dgamma[channel] = fresh ? sum_dyx : dgamma[channel] + sum_dyx;
    dbeta[channel] = fresh ? sum_dy : dbeta[channel] + sum_dy;
  }
};
Accumulators accumulators_of(const KernelArgs& args) {
  return {args.out[1].as<float>(), args.out[2].as<float>(), args.attrs.integer_or("fresh", 0) != 0};
}

template <typename T>
struct FinishGrad {
  Accumulators acc;
  GradCoefficients<T> coefficients;
  __device__ void operator()(int channel, double sum_dy, double sum_dyx) const {
    acc.add(channel, static_cast<float>(sum_dy), static_cast<float>(sum_dyx));
    coefficients.write(channel, sum_dy, sum_dyx);
  }
};

struct FinishGradSums {
  Accumulators acc;
  float* sums;  // [2][channels]
  int channels;
  __device__ void operator()(int channel, double sum_dy, double sum_dyx) const {
    sums[channel] = static_cast<float>(sum_dy);
    sums[channels + channel] = static_cast<float>(sum_dyx);
    acc.add(channel, sums[channel], sums[channels + channel]);
  }
};

void run_batch_norm_grad(const KernelArgs& args, Stream& stream) {
  const TensorArg &dy = args.in[0], &x = args.in[1], &gamma = args.in[2], &dx = args.out[0];
  const void* beta = args.attrs.integer_or("relu", 0) != 0 ? args.in[7].data : nullptr;
  const ChannelCut cut(x.type.shape);
  const Scratch scratch(args, cut);
  for_channel_groups(x.type.dtype, cut.channels, {dy.data, x.data, gamma.data, beta, dx.data},
                     [&]<typename T>(T*, auto size) {
                       const BatchGradCall<T> call{.dy = dy.as<T>(),
                                                   .x = x.as<T>(),
                                                   .gamma = gamma.as<T>(),
                                                   .beta = static_cast<const T*>(beta),
                                                   .mean = args.in[3].as<float>(),
                                                   .rstd = args.in[4].as<float>(),
                                                   .rows = cut.rows,
                                                   .channels = cut.channels};
                       const GradCoefficients<T> coefficients{call.gamma, call.rstd, scratch.figures,
                                                              static_cast<double>(cut.rows), cut.channels};
                       launch_grad_sums<T, size>(call, cut, scratch.partials, queue_of(stream));
                       launch_finish(cut, scratch.partials,
                                     FinishGrad<T>{accumulators_of(args), coefficients}, queue_of(stream));
                       launch_grad_rows<T, size>(call, scratch.figures, dx.as<T>(), queue_of(stream));
                     });
}

void run_batch_norm_grad_stats(const KernelArgs& args, Stream& stream) {
  const TensorArg &dy = args.in[0], &x = args.in[1];
  const ChannelCut cut(x.type.shape);
  const Scratch scratch(args, cut);
  for_channel_groups(x.type.dtype, cut.channels, {dy.data, x.data}, [&]<typename T>(T*, auto size) {
    const BatchGradCall<T> call{.dy = dy.as<T>(),
                                .x = x.as<T>(),
                                .gamma = nullptr,
                                .beta = nullptr,
                                .mean = args.in[2].as<float>(),
                                .rstd = args.in[3].as<float>(),
                                .rows = cut.rows,
                                .channels = cut.channels};
    launch_grad_sums<T, size>(call, cut, scratch.partials, queue_of(stream));
  });
  const FinishGradSums finish{accumulators_of(args), args.out[0].as<float>(), static_cast<int>(cut.channels)};
  launch_finish(cut, scratch.partials, finish, queue_of(stream));
}

template <typename T>
__global__ void __launch_bounds__(kChannelThreads)
    coefficients_of_sums(const float* sums, int channels, const GradCoefficients<T> coefficients) {
  const int channel = static_cast<int>(blockIdx.x * kChannelThreads + threadIdx.x);
  if (channel < channels)
    coefficients.write(channel, static_cast<double>(sums[channel]),
                       static_cast<double>(sums[channels + channel]));
}

void run_batch_norm_grad_apply(const KernelArgs& args, Stream& stream) {
  const TensorArg &dy = args.in[0], &x = args.in[1], &gamma = args.in[2], &dx = args.out[0];
  const ChannelCut cut(x.type.shape);
  const Scratch scratch(args, cut);
  const auto blocks = static_cast<unsigned>(ceil_div(cut.channels, kChannelThreads));
  for_channel_groups(
      x.type.dtype, cut.channels, {dy.data, x.data, gamma.data, dx.data}, [&]<typename T>(T*, auto size) {
        const BatchGradCall<T> call{.dy = dy.as<T>(),
                                    .x = x.as<T>(),
                                    .gamma = gamma.as<T>(),
                                    .beta = nullptr,
                                    .mean = args.in[3].as<float>(),
                                    .rstd = args.in[4].as<float>(),
                                    .rows = cut.rows,
                                    .channels = cut.channels};
        const GradCoefficients<T> coefficients{call.gamma, call.rstd, scratch.figures,
                                               static_cast<double>(args.attrs.integer("size") * cut.rows),
                                               cut.channels};
        coefficients_of_sums<<<blocks, kChannelThreads, 0, queue_of(stream)>>>(
            args.in[5].as<float>(), static_cast<int>(cut.channels), coefficients);
        check_launch("batch_norm_grad_apply");
        launch_grad_rows<T, size>(call, scratch.figures, dx.as<T>(), queue_of(stream));
      });
}

// --- what is supported ----------------------------------------------------------------------------------
// Inputs [0, stored) have the storage type, those up to `sums` are f32, any more have the storage type again.
bool has_types(const CallSignature& call, size_t stored, size_t sums) {
  const DType storage = call.in[0].dtype;
  for (size_t i = 0; i < call.in.size(); ++i) {
    const bool is_sum = i >= stored && i < sums;
    if (call.in[i].dtype != (is_sum ? DType::F32 : storage)) return false;
  }
  return is_storage(storage) && call.in.size() >= sums;
}
bool first_is_stored(const CallSignature& call) {
  for (size_t i = 1; i < call.out.size(); ++i) {
    if (call.out[i].dtype != DType::F32) return false;
  }
  return call.out[0].dtype == call.in[0].dtype;
}

bool supports_norm(const CallSignature& call) { return has_types(call, 3, 5) && first_is_stored(call); }
bool supports_grad(const CallSignature& call) { return has_types(call, 3, 7) && first_is_stored(call); }
bool supports_stats(const CallSignature& call) {
  return has_types(call, 1, 1) && call.out[0].dtype == DType::F32;
}
bool supports_apply(const CallSignature& call) { return has_types(call, 3, 6) && first_is_stored(call); }
bool supports_grad_stats(const CallSignature& call) {
  return has_types(call, 2, 6) && call.out[0].dtype == DType::F32 && call.out[1].dtype == DType::F32 &&
         call.out[2].dtype == DType::F32;
}

}  // namespace

void add_batch_norm_kernels(KernelRegistry& registry) {
  registry.add({"cuda.batch_norm", Op::BatchNorm, supports_norm, workspace, run_batch_norm});
  registry.add({"cuda.batch_norm_infer", Op::BatchNormInfer, supports_norm, workspace, run_batch_norm_infer});
  registry.add({"cuda.batch_norm_grad", Op::BatchNormGrad, supports_grad, workspace, run_batch_norm_grad});
  registry.add(
      {"cuda.batch_norm_stats", Op::BatchNormStats, supports_stats, workspace, run_batch_norm_stats});
  registry.add({"cuda.batch_norm_apply", Op::BatchNormApply, supports_apply, nullptr, run_batch_norm_apply});
  registry.add({"cuda.batch_norm_grad_stats", Op::BatchNormGradStats, supports_grad_stats, workspace,
                run_batch_norm_grad_stats});
  registry.add({"cuda.batch_norm_grad_apply", Op::BatchNormGradApply, supports_apply, workspace,
                run_batch_norm_grad_apply});
}

}  // namespace tandem::cuda
