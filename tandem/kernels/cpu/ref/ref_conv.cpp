// Reference convolutions: NHWC images, weights [out, kh, kw, in], one stride and one padding for both sides.
#include "tandem/kernels/cpu/ref/ref_tensor.h"

namespace tandem::cpu::ref {
namespace {

struct ConvShape {
  int64_t batch, height, width, in;
  int64_t out_height, out_width, out;
  int64_t kernel_height, kernel_width, stride, pad;

  ConvShape(const Shape& x, const Shape& w, const Shape& y, const Attrs& attrs)
      : batch(x[0]),
        height(x[1]),
        width(x[2]),
        in(x[3]),
        out_height(y[1]),
        out_width(y[2]),
        out(y[3]),
        kernel_height(w[1]),
        kernel_width(w[2]),
        stride(attrs.integer("stride")),
        pad(attrs.integer("pad")) {
    TANDEM_CHECK(out_height == (height + 2 * pad - kernel_height) / stride + 1 &&
                     out_width == (width + 2 * pad - kernel_width) / stride + 1 && w[3] == in && w[0] == out,
                 "convolution of {} by {} to {}", to_string(x), to_string(w), to_string(y));
  }

  // Calls fn(x index, w index, y index) for every product of the convolution that lies inside the image.
  template <typename Fn>
  void for_each_product(Fn&& fn) const {
    for (int64_t pixel = 0; pixel < batch * out_height * out_width; ++pixel) {
      const int64_t image = pixel / (out_height * out_width);
      const int64_t oh = pixel / out_width % out_height, ow = pixel % out_width;
      for (int64_t tap = 0; tap < kernel_height * kernel_width; ++tap) {
        const int64_t h = oh * stride - pad + tap / kernel_width;
        const int64_t w = ow * stride - pad + tap % kernel_width;
        if (h < 0 || h >= height || w < 0 || w >= width) continue;
        const int64_t x_base = ((image * height + h) * width + w) * in;
        for (int64_t o = 0; o < out; ++o) {
          const int64_t w_base = (o * kernel_height * kernel_width + tap) * in;
          for (int64_t c = 0; c < in; ++c) fn(x_base + c, w_base + c, pixel * out + o);
        }
      }
    }
  }
};

void run_conv2d(const KernelArgs& args, Stream&) {
  const TensorArg &x = args.in[0], &w = args.in[1], &y = args.out[0];
  const ConvShape shape(x.type.shape, w.type.shape, y.type.shape, args.attrs);
  std::vector<double> sums(static_cast<size_t>(y.elems()));
  shape.for_each_product(
      [&](int64_t xi, int64_t wi, int64_t yi) { sums[static_cast<size_t>(yi)] += get(x, xi) * get(w, wi); });
  for (int64_t i = 0; i < y.elems(); ++i) {
    const double bias = args.in.size() > 2 ? get(args.in[2], i % shape.out) : 0;
    set(y, i, sums[static_cast<size_t>(i)] + bias);
  }
}

void run_conv2d_grad_input(const KernelArgs& args, Stream&) {
  const TensorArg &dy = args.in[0], &w = args.in[1], &dx = args.out[0];
  const ConvShape shape(dx.type.shape, w.type.shape, dy.type.shape, args.attrs);
  std::vector<double> sums(static_cast<size_t>(dx.elems()));
  shape.for_each_product(
      [&](int64_t xi, int64_t wi, int64_t yi) { sums[static_cast<size_t>(xi)] += get(dy, yi) * get(w, wi); });
  for (int64_t i = 0; i < dx.elems(); ++i) set(dx, i, sums[static_cast<size_t>(i)]);
}

void run_conv2d_grad_weight(const KernelArgs& args, Stream&) {
  const TensorArg &x = args.in[1], &dy = args.in[2], &acc = args.out[0];
  const ConvShape shape(x.type.shape, acc.type.shape, dy.type.shape, args.attrs);
  std::vector<double> sums(static_cast<size_t>(acc.elems()));
  begin_accumulators(args, {0});
  shape.for_each_product(
      [&](int64_t xi, int64_t wi, int64_t yi) { sums[static_cast<size_t>(wi)] += get(dy, yi) * get(x, xi); });
  for (int64_t i = 0; i < acc.elems(); ++i) accumulate(acc, i, sums[static_cast<size_t>(i)]);
}

}  // namespace

void add_conv(KernelRegistry& registry) {
  add(registry, Op::Conv2d, run_conv2d);
  add(registry, Op::Conv2dGradInput, run_conv2d_grad_input);
  add(registry, Op::Conv2dGradWeight, run_conv2d_grad_weight);
}

}  // namespace tandem::cpu::ref
