// Reference pooling over NHWC images.
#include "tandem/kernels/cpu/ref/ref_tensor.h"

namespace tandem::cpu::ref {
namespace {

// Padding never wins, the first of equal maxima does, and a NaN wins over any number.
void run_max_pool2d(const KernelArgs& args, Stream&) {
  const TensorArg &x = args.in[0], &y = args.out[0], &argmax = args.out[1];
  const Shape &xs = x.type.shape, &ys = y.type.shape;
  const int64_t height = xs[1], width = xs[2], channels = xs[3];
  const int64_t size = args.attrs.integer("size"), stride = args.attrs.integer("stride");
  const int64_t pad = args.attrs.integer("pad");
  for (int64_t i = 0; i < y.elems(); ++i) {
    const int64_t c = i % channels, pixel = i / channels;
    const int64_t ow = pixel % ys[2], oh = pixel / ys[2] % ys[1], image = pixel / (ys[1] * ys[2]);
    double best = 0;
    int64_t best_at = -1;
    for (int64_t tap = 0; tap < size * size; ++tap) {
      const int64_t h = oh * stride - pad + tap / size, w = ow * stride - pad + tap % size;
      if (h < 0 || h >= height || w < 0 || w >= width) continue;
      const double value = get(x, ((image * height + h) * width + w) * channels + c);
      if (best_at < 0 || value > best || (std::isnan(value) && !std::isnan(best))) {
        best = value;
        best_at = h * width + w;
      }
    }
    TANDEM_CHECK(best_at >= 0, "pooling window with no pixel: size {} pad {}", size, pad);
    set(y, i, best);
    argmax.as<int32_t>()[i] = static_cast<int32_t>(best_at);
  }
}

void run_max_pool2d_grad(const KernelArgs& args, Stream&) {
  const TensorArg &dy = args.in[0], &argmax = args.in[1], &dx = args.out[0];
  const Shape &dxs = dx.type.shape, &dys = dy.type.shape;
  const int64_t channels = dxs[3], image_elems = dxs[1] * dxs[2] * channels;
  const int64_t out_elems = dys[1] * dys[2] * channels;
  std::vector<double> sums(static_cast<size_t>(dx.elems()));
  for (int64_t i = 0; i < dy.elems(); ++i) {
    sums[static_cast<size_t>(i / out_elems * image_elems + index(argmax, i) * channels + i % channels)] +=
        get(dy, i);
  }
  for (int64_t i = 0; i < dx.elems(); ++i) set(dx, i, sums[static_cast<size_t>(i)]);
}

void run_global_avg_pool(const KernelArgs& args, Stream&) {
  const TensorArg &x = args.in[0], &y = args.out[0];
  const int64_t channels = x.type.shape.last(), pixels = x.elems() / y.elems();
  for (int64_t i = 0; i < y.elems(); ++i) {
    double sum = 0;
    for (int64_t p = 0; p < pixels; ++p) sum += get(x, (i / channels * pixels + p) * channels + i % channels);
    set(y, i, sum / static_cast<double>(pixels));
  }
}

void run_global_avg_pool_grad(const KernelArgs& args, Stream&) {
  const TensorArg &dy = args.in[0], &dx = args.out[0];
  const int64_t channels = dy.type.shape.last(), pixels = dx.elems() / dy.elems();
  for (int64_t i = 0; i < dx.elems(); ++i) {
    const double share = get(dy, i / (channels * pixels) * channels + i % channels);
    set(dx, i, share / static_cast<double>(pixels));
  }
}

}  // namespace

void add_pool(KernelRegistry& registry) {
  add(registry, Op::MaxPool2d, run_max_pool2d);
  add(registry, Op::MaxPool2dGrad, run_max_pool2d_grad);
  add(registry, Op::GlobalAvgPool, run_global_avg_pool);
  add(registry, Op::GlobalAvgPoolGrad, run_global_avg_pool_grad);
}

}  // namespace tandem::cpu::ref
