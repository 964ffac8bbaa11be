// Pooling over NHWC images, a vector of channels at a time.
#include <cstring>

#include "tandem/kernels/cpu/conv/image_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/conv/pool.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/pointwise/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

using IndexTag = hn::RebindToSigned<FloatTag>;

HWY_INLINE void store_index(IndexTag d, hn::Vec<IndexTag> v, int32_t* dst, Whole) { hn::StoreU(v, d, dst); }
HWY_INLINE void store_index(IndexTag d, hn::Vec<IndexTag> v, int32_t* dst, Part part) {
  alignas(64) int32_t padded[HWY_MAX_BYTES / sizeof(int32_t)];
  hn::Store(v, d, padded);
  std::memcpy(dst, padded, part.count * sizeof(int32_t));
}

// The maximum over rows h, columns w of an image: the first of equals, and a NaN over all.
template <typename S>
void max_window(const S* image, int64_t width, int64_t channels, cpu::Range h, cpu::Range w, S* y,
                int32_t* argmax) {
  const FloatTag d;
  const IndexTag di;
  for_each_vector(channels, [&](size_t c, auto part) HWY_ATTR {
    const int64_t first = h.begin * width + w.begin;
    FloatVec best = load_float(d, image + first * channels + c, part);
    auto best_at = hn::Set(di, static_cast<int32_t>(first));
    for (int64_t row = h.begin; row < h.end; ++row) {
      for (int64_t at = row * width + w.begin; at < row * width + w.end; ++at) {
        const FloatVec v = load_float(d, image + at * channels + c, part);
        const auto wins = hn::Or(hn::Gt(v, best), hn::AndNot(hn::IsNaN(best), hn::IsNaN(v)));
        best = hn::IfThenElse(wins, v, best);
        best_at = hn::IfThenElse(hn::RebindMask(di, wins), hn::Set(di, static_cast<int32_t>(at)), best_at);
      }
    }
    store_float(d, best, y + c, part);
    store_index(di, best_at, argmax + c, part);
  });
}

void run_max_pool(const KernelArgs& args, Stream& stream) {
  const TensorArg &x = args.in[0], &y = args.out[0], &argmax = args.out[1];
  const Shape &xs = x.type.shape, &ys = y.type.shape;
  const int64_t height = xs[1], width = xs[2], channels = xs[3], out_height = ys[1], out_width = ys[2];
  const int64_t size = args.attrs.integer("size"), stride = args.attrs.integer("stride");
  const int64_t pad = args.attrs.integer("pad");
  TANDEM_CHECK(pad < size, "pooling window with no pixel: size {} pad {}", size, pad);
  const auto window = [&](int64_t out, int64_t limit) {
    const int64_t begin = out * stride - pad;
    return cpu::Range{std::max<int64_t>(begin, 0), std::min(begin + size, limit)};
  };
  cpu::with_storage(x.type.dtype, [&]<typename S>(S) {
    cpu::for_row_groups(stream.pool(), ys[0] * out_height, out_width * channels,
                        [&](int64_t begin, int64_t end, int) {
                          for (int64_t row = begin; row < end; ++row) {
                            const S* image = x.as<S>() + row / out_height * height * width * channels;
                            for (int64_t ow = 0; ow < out_width; ++ow) {
                              const int64_t at = (row * out_width + ow) * channels;
                              max_window(image, width, channels, window(row % out_height, height),
                                         window(ow, width), y.as<S>() + at, argmax.as<int32_t>() + at);
                            }
                          }
                        });
  });
}

// Four running sums hide the latency of the additions.
template <typename S>
void mean_of_pixels(const S* x, int64_t pixels, int64_t channels, S* y) {
  const FloatTag d;
  const FloatVec inverse = hn::Set(d, 1.0f / static_cast<float>(pixels));
  for_each_vector(channels, [&](size_t c, auto part) HWY_ATTR {
    FloatVec sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    int64_t p = 0;
    for (; p + 4 <= pixels; p += 4) {
      const S* at = x + p * channels + c;
      sum0 = hn::Add(sum0, load_float(d, at, part));
      sum1 = hn::Add(sum1, load_float(d, at + channels, part));
      sum2 = hn::Add(sum2, load_float(d, at + 2 * channels, part));
      sum3 = hn::Add(sum3, load_float(d, at + 3 * channels, part));
    }
    for (; p < pixels; ++p) sum0 = hn::Add(sum0, load_float(d, x + p * channels + c, part));
    const FloatVec sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
    store_float(d, hn::Mul(sum, inverse), y + c, part);
  });
}

void run_global_avg(const KernelArgs& args, Stream& stream) {
  const TensorArg &x = args.in[0], &y = args.out[0];
  const int64_t images = y.type.shape[0], channels = y.type.shape.last();
  const int64_t pixels = x.elems() / y.elems();
  cpu::with_storage(x.type.dtype, [&]<typename S>(S) {
    stream.pool().parallel_for(images, [&](int64_t image, int) {
      mean_of_pixels(x.as<S>() + image * pixels * channels, pixels, channels, y.as<S>() + image * channels);
    });
  });
}

template <typename S>
void spread_row(const S* dy, int64_t channels, float inverse, S* dx) {
  const FloatTag d;
  const FloatVec factor = hn::Set(d, inverse);
  for_each_vector(channels, [&](size_t c, auto part) HWY_ATTR {
    store_float(d, hn::Mul(load_float(d, dy + c, part), factor), dx + c, part);
  });
}

void run_global_avg_grad(const KernelArgs& args, Stream& stream) {
  const TensorArg &dy = args.in[0], &dx = args.out[0];
  const int64_t images = dy.type.shape[0], channels = dy.type.shape.last();
  const int64_t pixels = dx.elems() / dy.elems();
  cpu::with_storage(dy.type.dtype, [&]<typename S>(S) {
    stream.pool().parallel_for(images, [&](int64_t image, int) {
      S* first = dx.as<S>() + image * pixels * channels;
      spread_row(dy.as<S>() + image * channels, channels, 1.0f / static_cast<float>(pixels), first);
      for (int64_t p = 1; p < pixels; ++p) {
        std::memcpy(first + p * channels, first, static_cast<size_t>(channels) * sizeof(S));
      }
    });
  });
}

// dx[pixel][0, count) = sums[pixel][0, count)
template <typename S>
void store_block(const float* sums, int64_t pixels, int64_t pitch, int64_t channels, int64_t count, S* dx) {
  const FloatTag d;
  for (int64_t p = 0; p < pixels; ++p) {
    for_each_vector(count, [&](size_t c, auto part) HWY_ATTR {
      store_float(d, load_float(d, sums + p * pitch + c, part), dx + p * channels + c, part);
    });
  }
}

void store_sums(DType dtype, const float* sums, int64_t pixels, int64_t pitch, int64_t channels,
                int64_t count, void* dx) {
  cpu::with_storage(
      dtype, [&]<typename S>(S) { store_block(sums, pixels, pitch, channels, count, static_cast<S*>(dx)); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(run_max_pool);
HWY_EXPORT(run_global_avg);
HWY_EXPORT(run_global_avg_grad);
HWY_EXPORT(store_sums);

namespace cpu {
namespace {

constexpr int64_t kGradChannels = 16;  // a cache line of fp32 sums

void max_pool2d(const KernelArgs& args, Stream& stream) { HWY_DYNAMIC_DISPATCH(run_max_pool)(args, stream); }
void global_avg_pool(const KernelArgs& args, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(run_global_avg)(args, stream);
}
void global_avg_pool_grad(const KernelArgs& args, Stream& stream) {
  HWY_DYNAMIC_DISPATCH(run_global_avg_grad)(args, stream);
}

int64_t grad_sum_elems(const Shape& dx) { return dx[1] * dx[2] * kGradChannels; }

size_t grad_workspace(const CallSignature& call, int num_threads) {
  return static_cast<size_t>(grad_sum_elems(call.out[0].shape) * num_threads) * sizeof(float);
}

float as_float(float x) { return x; }
float as_float(BFloat16 x) { return to_float(x); }
float as_float(Half x) { return to_float(x); }

// A task owns a few channels of an image: it scatters into fp32 sums of its own, outputs in order.
void max_pool2d_grad(const KernelArgs& args, Stream& stream) {
  const TensorArg &dy = args.in[0], &dx = args.out[0];
  const int64_t channels = dx.type.shape[3], pixels = dx.type.shape[1] * dx.type.shape[2];
  const int64_t out_pixels = dy.type.shape[1] * dy.type.shape[2];
  const int64_t blocks = ceil_div(channels, kGradChannels);
  const DType dtype = dy.type.dtype;
  stream.pool().parallel_for(dx.type.shape[0] * blocks, [&](int64_t task, int worker) {
    const int64_t image = task / blocks;
    const Range block = part(channels, kGradChannels, task % blocks);
    float* sums = reinterpret_cast<float*>(args.workspace.data()) + worker * grad_sum_elems(dx.type.shape);
    std::fill_n(sums, pixels * kGradChannels, 0.0f);
    const int64_t at = image * out_pixels * channels + block.begin;
    const int32_t* argmax = args.in[1].as<int32_t>() + at;
    with_storage(dtype, [&]<typename S>(S) {
      const S* src = dy.as<S>() + at;
      for (int64_t p = 0; p < out_pixels; ++p) {
        for (int64_t c = 0; c < block.size(); ++c) {
          sums[argmax[p * channels + c] * kGradChannels + c] += as_float(src[p * channels + c]);
        }
      }
    });
    void* dst = offset_elems(dx.data, dtype, image * pixels * channels + block.begin);
    HWY_DYNAMIC_DISPATCH(store_sums)(dtype, sums, pixels, kGradChannels, channels, block.size(), dst);
  });
}

bool supports(const CallSignature& call) {
  return is_storage(call.in[0].dtype) && call.out[0].dtype == call.in[0].dtype;
}

}  // namespace

void add_pool_kernels(KernelRegistry& registry) {
  registry.add({"cpu.max_pool2d", Op::MaxPool2d, supports, nullptr, max_pool2d});
  registry.add({"cpu.max_pool2d_grad", Op::MaxPool2dGrad, supports, grad_workspace, max_pool2d_grad});
  registry.add({"cpu.global_avg_pool", Op::GlobalAvgPool, supports, nullptr, global_avg_pool});
  registry.add({"cpu.global_avg_pool_grad", Op::GlobalAvgPoolGrad, supports, nullptr, global_avg_pool_grad});
}

}  // namespace cpu
}  // namespace tandem
#endif
