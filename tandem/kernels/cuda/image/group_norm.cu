// GroupNorm of NHWC images. A block makes the statistics of one group of one image; what the gradient of
// every element needs of its group it makes the same way, and the parameters' gradients are sums over all
// rows.
#include "tandem/kernels/cuda/block_sum.cuh"
#include "tandem/kernels/cuda/image/channel_sums.cuh"
#include "tandem/kernels/cuda/image/image_kernels.h"
#include "tandem/runtime/storage.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = int64_t{1} << 20;

struct GroupShape {
  int64_t images, pixels, channels, groups, group_channels;

  GroupShape(const Shape& x, int64_t num_groups)
      : images(x[0]), pixels(x.rows() / x[0]), channels(x.last()), groups(num_groups) {
    TANDEM_CHECK(channels % groups == 0, "{} channels in {} groups", channels, groups);
    group_channels = channels / groups;
  }
  int64_t sets() const { return images * groups; }
  __device__ int64_t set_elems() const { return pixels * group_channels; }
  // Element i of a set, in the image's order.
  __device__ int64_t element(int64_t set, int64_t i) const {
    const int64_t image = set / groups, pixel = i / group_channels;
    return (image * pixels + pixel) * channels + channel(set, i);
  }
  __device__ int64_t channel(int64_t set, int64_t i) const {
    return set % groups * group_channels + i % group_channels;
  }
  __device__ int64_t set_of(int64_t row, int64_t at_channel) const {
    return row / pixels * groups + at_channel / group_channels;
  }
};

unsigned blocks_for(int64_t items) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    group_statistics(const GroupShape s, const T* x, double eps, float* mean, float* rstd) {
  const int64_t set = blockIdx.x, elems = s.set_elems();
  const auto value = [&](int64_t i) { return static_cast<double>(to_float(x[s.element(set, i)])); };
  const double count = static_cast<double>(elems);
  const double center = block_sum_of<kThreads>(elems, value) / count;
  const double m2 = block_sum_of<kThreads>(elems, [&](int64_t i) {
    const double distance = value(i) - center;
    return distance * distance;
  });
  if (threadIdx.x != 0) return;
  mean[set] = static_cast<float>(center);
  rstd[set] = static_cast<float>(1 / sqrt(m2 / count + eps));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    group_normalise(const GroupShape s, const T* x, const T* gamma, const T* beta, const float* mean,
                    const float* rstd, T* y) {
  const int64_t elems = s.images * s.pixels * s.channels, step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elems; i += step) {
    const int64_t row = i / s.channels, channel = i - row * s.channels, set = s.set_of(row, channel);
    const float x_hat = (to_float(x[i]) - mean[set]) * rstd[set];
    y[i] = from_float<T>(fmaf(x_hat, to_float(gamma[channel]), to_float(beta[channel])));
  }
}

template <typename T>
struct GroupGradCall {
  const T *dy, *x, *gamma;
  const float *mean, *rstd;
};

// The means of g = gamma dy and of g x_hat over each set: [2][sets].
template <typename T>
__global__ void __launch_bounds__(kThreads)
    group_grad_means(const GroupShape s, const GroupGradCall<T> call, float* means) {
  const int64_t set = blockIdx.x, elems = s.set_elems();
  const double center = static_cast<double>(call.mean[set]), inverse = static_cast<double>(call.rstd[set]);
  const auto g = [&](int64_t i) {
    return static_cast<double>(to_float(call.dy[s.element(set, i)])) *
           static_cast<double>(to_float(call.gamma[s.channel(set, i)]));
  };
  const double sum_g = block_sum_of<kThreads>(elems, g);
  const double sum_gx = block_sum_of<kThreads>(elems, [&](int64_t i) {
    return g(i) * (static_cast<double>(to_float(call.x[s.element(set, i)])) - center) * inverse;
  });
  if (threadIdx.x != 0) return;
  means[set] = static_cast<float>(sum_g / static_cast<double>(elems));
  means[s.images * s.groups + set] = static_cast<float>(sum_gx / static_cast<double>(elems));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    group_grad_rows(const GroupShape s, const GroupGradCall<T> call, const float* means, T* dx) {
  const int64_t elems = s.images * s.pixels * s.channels, step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elems; i += step) {
    const int64_t row = i / s.channels, channel = i - row * s.channels, set = s.set_of(row, channel);
    const float x_hat = (to_float(call.x[i]) - call.mean[set]) * call.rstd[set];
    const float g = to_float(call.dy[i]) * to_float(call.gamma[channel]);
    const float rest = fmaf(x_hat, means[s.images * s.groups + set], means[set]);
    dx[i] = from_float<T>(call.rstd[set] * (g - rest));
  }
}

// Sums of dy and of dy x_hat over all rows, a channel a thread.
template <typename T>
__global__ void __launch_bounds__(kChannelThreads)
    group_parameter_sums(const GroupShape s, const GroupGradCall<T> call, int64_t split_rows,
                         double* partials) {
  const int64_t channel = own_channel<1>(), rows = s.images * s.pixels;
  const int64_t begin = blockIdx.x * split_rows, end = min(begin + split_rows, rows);
  double first[1] = {}, second[1] = {};
  if (channel < s.channels) {
    for (int64_t row = begin + threadIdx.y; row < end; row += blockDim.y) {
      const int64_t at = row * s.channels + channel, set = s.set_of(row, channel);
      const double dy = static_cast<double>(to_float(call.dy[at]));
      first[0] += dy;
      second[0] += dy * static_cast<double>((to_float(call.x[at]) - call.mean[set]) * call.rstd[set]);
    }
  }
  write_partials(first, second, s.channels, partials);
}

struct AddParameters {
  float *dgamma, *dbeta;
  __device__ void operator()(int channel, double sum_dy, double sum_dyx) const {
    dgamma[channel] += static_cast<float>(sum_dyx);
    dbeta[channel] += static_cast<float>(sum_dy);
  }
};

void run_group_norm(const KernelArgs& args, Stream& stream) {
  const TensorArg &x = args.in[0], &y = args.out[0];
  const GroupShape s(x.type.shape, args.attrs.integer("groups"));
  float *mean = args.out[1].as<float>(), *rstd = args.out[2].as<float>();
  for_storage(x.type.dtype, [&]<typename T>(T*) {
    group_statistics<<<static_cast<unsigned>(s.sets()), kThreads, 0, queue_of(stream)>>>(
        s, x.as<T>(), args.attrs.real("eps"), mean, rstd);
    check_launch("group_norm");
    group_normalise<<<blocks_for(x.elems()), kThreads, 0, queue_of(stream)>>>(
        s, x.as<T>(), args.in[1].as<T>(), args.in[2].as<T>(), mean, rstd, y.as<T>());
  });
  check_launch("group_norm");
}

size_t grad_workspace(const CallSignature& call, int) {
  const ChannelCut cut(call.in[1].shape);
  return cut.partial_bytes() + static_cast<size_t>(2 * call.in[3].shape.elems()) * sizeof(float);
}

void run_group_norm_grad(const KernelArgs& args, Stream& stream) {
  const TensorArg &x = args.in[1], &dx = args.out[0];
  const GroupShape s(x.type.shape, args.attrs.integer("groups"));
  const ChannelCut cut(x.type.shape);
  auto* partials = reinterpret_cast<double*>(args.workspace.data());
  auto* means = reinterpret_cast<float*>(args.workspace.data() + cut.partial_bytes());
  for_storage(x.type.dtype, [&]<typename T>(T*) {
    const GroupGradCall<T> call{.dy = args.in[0].as<T>(),
                                .x = x.as<T>(),
                                .gamma = args.in[2].as<T>(),
                                .mean = args.in[3].as<float>(),
                                .rstd = args.in[4].as<float>()};
    group_grad_means<<<static_cast<unsigned>(s.sets()), kThreads, 0, queue_of(stream)>>>(s, call, means);
    check_launch("group_norm_grad");
    group_grad_rows<<<blocks_for(x.elems()), kThreads, 0, queue_of(stream)>>>(s, call, means, dx.as<T>());
    check_launch("group_norm_grad");
    const ChannelLaunch launch = channel_launch(cut.splits, cut.channels, 1);
    group_parameter_sums<<<launch.grid, launch.block, 0, queue_of(stream)>>>(s, call, cut.split_rows,
                                                                             partials);
    check_launch("group_norm_grad");
  });
  const AddParameters add{args.out[1].as<float>(), args.out[2].as<float>()};
  launch_finish(cut, partials, add, queue_of(stream));
}

bool supports(const CallSignature& call) {
  const DType storage = call.in[0].dtype;
  return is_storage(storage) && call.in[1].dtype == storage && call.in[2].dtype == storage &&
         call.out[0].dtype == storage && call.out[1].dtype == DType::F32 && call.out[2].dtype == DType::F32;
}
bool supports_grad(const CallSignature& call) {
  return supports(call) && call.in[3].dtype == DType::F32 && call.in[4].dtype == DType::F32;
}

}  // namespace

void add_group_norm_kernels(KernelRegistry& registry) {
  registry.add({"cuda.group_norm", Op::GroupNorm, supports, nullptr, run_group_norm});
  registry.add(
      {"cuda.group_norm_grad", Op::GroupNormGrad, supports_grad, grad_workspace, run_group_norm_grad});
}

}  // namespace tandem::cuda
