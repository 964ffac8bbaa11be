// Pooling of NHWC images. A thread has a group of channels of one pixel.
#include <algorithm>

#include "tandem/kernels/cuda/device/cuda_check.h"
#include "tandem/kernels/cuda/elements.cuh"
#include "tandem/kernels/cuda/groups.cuh"
#include "tandem/kernels/cuda/image/image_kernels.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = int64_t{1} << 20;

struct PoolShape {
  int64_t batch, height, width, channels;  // of x
  int64_t out_height, out_width;
  int64_t size, stride, pad;

  PoolShape(const Shape& x, const Shape& y, const Attrs& attrs)
      : batch(x[0]),
        height(x[1]),
        width(x[2]),
        channels(x[3]),
        out_height(y[1]),
        out_width(y[2]),
        size(attrs.integer("size")),
        stride(attrs.integer("stride")),
        pad(attrs.integer("pad")) {}
};

unsigned blocks_for(int64_t items) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, kMaxBlocks));
}
__device__ __forceinline__ int64_t first_item() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}
__device__ __forceinline__ int64_t item_step() { return static_cast<int64_t>(gridDim.x) * kThreads; }

// Padding never wins, the first of equal maxima does, and a NaN wins over any number.
template <typename T, int kSize>
__global__ void __launch_bounds__(kThreads) max_pool(const PoolShape s, const T* x, T* y, int32_t* argmax) {
  const int64_t groups = s.channels / kSize, items = s.batch * s.out_height * s.out_width * groups;
  for (int64_t i = first_item(); i < items; i += item_step()) {
    const int64_t pixel = i / groups, channel = (i - pixel * groups) * kSize;
    const int64_t line = pixel / s.out_width, image = line / s.out_height;
    const int64_t first_h = (line - image * s.out_height) * s.stride - s.pad;
    const int64_t first_w = (pixel - line * s.out_width) * s.stride - s.pad;
    float best[kSize];
    Group<int32_t, kSize> best_at;
#pragma unroll
    for (int k = 0; k < kSize; ++k) best[k] = 0, best_at.value[k] = -1;
    for (int64_t h = max(first_h, int64_t{0}); h < min(first_h + s.size, s.height); ++h) {
      for (int64_t w = max(first_w, int64_t{0}); w < min(first_w + s.size, s.width); ++w) {
        const int64_t at = h * s.width + w;
        const auto group = load_group<kSize>(x + (image * s.height * s.width + at) * s.channels + channel);
#pragma unroll
        for (int k = 0; k < kSize; ++k) {
          const float value = to_float(group.value[k]);
          if (best_at.value[k] < 0 || value > best[k] || (isnan(value) && !isnan(best[k])))
            best[k] = value, best_at.value[k] = static_cast<int32_t>(at);
        }
      }
    }
    Group<T, kSize> out;
#pragma unroll
    for (int k = 0; k < kSize; ++k) out.value[k] = from_float<T>(best[k]);
    store_group(y + pixel * s.channels + channel, out);
    store_group(argmax + pixel * s.channels + channel, best_at);
  }
}

// A pixel of x gathers from the windows that it is in, in order.
template <typename T, int kSize>
__global__ void __launch_bounds__(kThreads)
    max_pool_grad(const PoolShape s, const T* dy, const int32_t* argmax, T* dx) {
  const int64_t groups = s.channels / kSize, items = s.batch * s.height * s.width * groups;
  for (int64_t i = first_item(); i < items; i += item_step()) {
    const int64_t pixel = i / groups, channel = (i - pixel * groups) * kSize;
    const int64_t line = pixel / s.width, image = line / s.height;
    const int64_t at = pixel - image * s.height * s.width;
    const int64_t h = line - image * s.height + s.pad, w = pixel - line * s.width + s.pad;
    // Window o has what lies in [o * stride, o * stride + size).
    const int64_t end_h = min(h / s.stride + 1, s.out_height), end_w = min(w / s.stride + 1, s.out_width);
    float sum[kSize] = {};
    for (int64_t oh = h < s.size ? 0 : (h - s.size) / s.stride + 1; oh < end_h; ++oh) {
      for (int64_t ow = w < s.size ? 0 : (w - s.size) / s.stride + 1; ow < end_w; ++ow) {
        const int64_t from = ((image * s.out_height + oh) * s.out_width + ow) * s.channels + channel;
        const auto which = load_group<kSize>(argmax + from);
        const auto group = load_group<kSize>(dy + from);
#pragma unroll
        for (int k = 0; k < kSize; ++k) {
          if (which.value[k] == at) sum[k] += to_float(group.value[k]);
        }
      }
    }
    Group<T, kSize> out;
#pragma unroll
    for (int k = 0; k < kSize; ++k) out.value[k] = from_float<T>(sum[k]);
    store_group(dx + pixel * s.channels + channel, out);
  }
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kThreads)
    avg_pool(int64_t images, int64_t pixels, int64_t channels, const T* x, T* y) {
  const int64_t groups = channels / kSize;
  for (int64_t i = first_item(); i < images * groups; i += item_step()) {
    const int64_t image = i / groups, channel = (i - image * groups) * kSize;
    double sum[kSize] = {};
#pragma unroll 4
    for (int64_t p = 0; p < pixels; ++p) {
      const auto group = load_group<kSize>(x + (image * pixels + p) * channels + channel);
#pragma unroll
      for (int k = 0; k < kSize; ++k) sum[k] += static_cast<double>(to_float(group.value[k]));
    }
    Group<T, kSize> out;
#pragma unroll
    for (int k = 0; k < kSize; ++k)
      out.value[k] = from_float<T>(static_cast<float>(sum[k] / static_cast<double>(pixels)));
    store_group(y + image * channels + channel, out);
  }
}

template <typename T, int kSize>
__global__ void __launch_bounds__(kThreads)
    avg_pool_grad(int64_t images, int64_t pixels, int64_t channels, const T* dy, T* dx) {
  const int64_t groups = channels / kSize;
  for (int64_t i = first_item(); i < images * pixels * groups; i += item_step()) {
    const int64_t pixel = i / groups, channel = (i - pixel * groups) * kSize;
    const auto group = load_group<kSize>(dy + pixel / pixels * channels + channel);
    Group<T, kSize> out;
#pragma unroll
    for (int k = 0; k < kSize; ++k)
      out.value[k] = from_float<T>(to_float(group.value[k]) / static_cast<float>(pixels));
    store_group(dx + pixel * channels + channel, out);
  }
}

// Calls fn(type, group size): groups of 16 bytes where the tensors allow it, else single elements.
template <typename Fn>
void for_groups(DType dtype, int64_t channels, std::initializer_list<const void*> tensors, const Fn& fn) {
  for_storage(dtype, [&]<typename T>(T* type) {
    constexpr int kSize = 16 / static_cast<int>(sizeof(T));
    const bool whole =
        channels % kSize == 0 && std::all_of(tensors.begin(), tensors.end(), [](const void* tensor) {
          return is_aligned(tensor, 4 * kSize);  // indices are 4 bytes each
        });
    if (whole) return fn(type, std::integral_constant<int, kSize>());
    fn(type, std::integral_constant<int, 1>());
  });
}

void run_max_pool(const KernelArgs& args, Stream& stream) {
  const TensorArg &x = args.in[0], &y = args.out[0], &argmax = args.out[1];
  const PoolShape s(x.type.shape, y.type.shape, args.attrs);
  for_groups(x.type.dtype, s.channels, {x.data, y.data, argmax.data}, [&]<typename T>(T*, auto size) {
    max_pool<T, size><<<blocks_for(y.elems() / size), kThreads, 0, queue_of(stream)>>>(
        s, x.as<T>(), y.as<T>(), argmax.as<int32_t>());
  });
  check_launch("max_pool2d");
}

void run_max_pool_grad(const KernelArgs& args, Stream& stream) {
  const TensorArg &dy = args.in[0], &argmax = args.in[1], &dx = args.out[0];
  const PoolShape s(dx.type.shape, dy.type.shape, args.attrs);
  for_groups(dx.type.dtype, s.channels, {dy.data, argmax.data, dx.data}, [&]<typename T>(T*, auto size) {
    max_pool_grad<T, size><<<blocks_for(dx.elems() / size), kThreads, 0, queue_of(stream)>>>(
        s, dy.as<T>(), argmax.as<int32_t>(), dx.as<T>());
  });
  check_launch("max_pool2d_grad");
}

void run_avg_pool(const KernelArgs& args, Stream& stream) {
  const TensorArg &x = args.in[0], &y = args.out[0];
  const int64_t images = x.type.shape[0], channels = x.type.shape.last(),
                pixels = x.type.shape.rows() / images;
  for_groups(x.type.dtype, channels, {x.data, y.data}, [&]<typename T>(T*, auto size) {
    avg_pool<T, size><<<blocks_for(y.elems() / size), kThreads, 0, queue_of(stream)>>>(
        images, pixels, channels, x.as<T>(), y.as<T>());
  });
  check_launch("global_avg_pool");
}

void run_avg_pool_grad(const KernelArgs& args, Stream& stream) {
  const TensorArg &dy = args.in[0], &dx = args.out[0];
  const int64_t images = dx.type.shape[0], channels = dx.type.shape.last();
  const int64_t pixels = dx.type.shape.rows() / images;
  for_groups(dx.type.dtype, channels, {dy.data, dx.data}, [&]<typename T>(T*, auto size) {
    avg_pool_grad<T, size><<<blocks_for(dx.elems() / size), kThreads, 0, queue_of(stream)>>>(
        images, pixels, channels, dy.as<T>(), dx.as<T>());
  });
  check_launch("global_avg_pool_grad");
}

bool supports(const CallSignature& call) {
  return is_storage(call.in[0].dtype) && call.out[0].dtype == call.in[0].dtype;
}
// Which windows a pixel is in follows from their size.
bool supports_max_grad(const CallSignature& call) { return supports(call) && call.attrs->has("size"); }

}  // namespace

void add_pool_kernels(KernelRegistry& registry) {
  registry.add({"cuda.max_pool2d", Op::MaxPool2d, supports, nullptr, run_max_pool});
  registry.add({"cuda.max_pool2d_grad", Op::MaxPool2dGrad, supports_max_grad, nullptr, run_max_pool_grad});
  registry.add({"cuda.global_avg_pool", Op::GlobalAvgPool, supports, nullptr, run_avg_pool});
  registry.add({"cuda.global_avg_pool_grad", Op::GlobalAvgPoolGrad, supports, nullptr, run_avg_pool_grad});
}

}  // namespace tandem::cuda
