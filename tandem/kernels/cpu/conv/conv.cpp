// Conv2d and its gradients. A 1x1 kernel with stride 1 is a matrix product of pixels by channels; all other
// kernels go to the direct engine. The input gradient is itself a convolution of dy: for stride s, the
// pixels of dx fall into s * s classes by their position modulo s, and each class sees a fixed subset of
// the kernel, flipped, with stride 1.
#include <cstring>

#include "tandem/kernels/cpu/conv/conv_direct.h"
#include "tandem/kernels/cpu/conv/conv_grad_weight.h"
#include "tandem/kernels/cpu/conv/image_kernels.h"
#include "tandem/kernels/cpu/gemm/gemm.h"

namespace tandem::cpu {
namespace {

ConvGeometry geometry(const Shape& x, const Shape& w, const Shape& y, const Attrs& attrs) {
  const int64_t stride = attrs.integer("stride"), pad = attrs.integer("pad");
  TANDEM_CHECK(y[1] == (x[1] + 2 * pad - w[1]) / stride + 1 && y[2] == (x[2] + 2 * pad - w[2]) / stride + 1 &&
                   w[3] == x[3] && w[0] == y[3],
               "convolution of {} by {} to {}", to_string(x), to_string(w), to_string(y));
  return {.images = x[0],
          .in_height = x[1],
          .in_width = x[2],
          .in_channels = x[3],
          .out_height = y[1],
          .out_width = y[2],
          .out_channels = y[3],
          .kernel_height = w[1],
          .kernel_width = w[2],
          .stride = stride,
          .pad_top = pad,
          .pad_left = pad};
}

bool is_matrix_product(const ConvGeometry& conv) {
  return conv.kernel_height == 1 && conv.kernel_width == 1 && conv.stride == 1 && conv.pad_top == 0;
}

int64_t num_pixels(const ConvGeometry& conv) { return conv.images * conv.out_height * conv.out_width; }

size_t gemm_bytes(int64_t m, int64_t n, int64_t k, DType dtype, DType c, int num_threads) {
  return gemm_workspace({.m = m, .n = n, .k = k, .a = dtype, .b = dtype, .c = c}, num_threads);
}

// --- forward --------------------------------------------------------------------------------------------

size_t conv2d_workspace(const CallSignature& call, int num_threads) {
  const ConvGeometry conv = geometry(call.in[0].shape, call.in[1].shape, call.out[0].shape, *call.attrs);
  const DType dtype = call.in[0].dtype;
  if (is_matrix_product(conv)) {
    return gemm_bytes(num_pixels(conv), conv.out_channels, conv.in_channels, dtype, dtype, num_threads);
  }
  const size_t bias_bytes =
      call.in.size() > 2 ? static_cast<size_t>(round_up(conv.out_channels, 16)) * sizeof(float) : 0;
  return bias_bytes + direct_conv_workspace(conv, dtype, num_threads);
}

void conv2d(const KernelArgs& args, Stream& stream) {
  const TensorArg &x = args.in[0], &w = args.in[1], &y = args.out[0];
  const ConvGeometry conv = geometry(x.type.shape, w.type.shape, y.type.shape, args.attrs);
  const DType dtype = x.type.dtype;
  const int64_t in = conv.in_channels, out = conv.out_channels;
  if (is_matrix_product(conv)) {
    gemm({.m = num_pixels(conv),
          .n = out,
          .k = in,
          .a = {x.data, dtype, in, 1},
          .b = {w.data, dtype, 1, in},
          .c = y.data,
          .c_dtype = dtype,
          .ldc = out,
          .bias = args.in.size() > 2 ? args.in[2].data : nullptr},
         args.workspace, stream.pool());
    return;
  }
  std::span<std::byte> workspace = args.workspace;
  float* bias = nullptr;
  if (args.in.size() > 2) {
    bias = reinterpret_cast<float*>(workspace.data());
    workspace = workspace.subspan(static_cast<size_t>(round_up(out, 16)) * sizeof(float));
    for (int64_t o = 0; o < out; ++o) bias[o] = weight_at(args.in[2], o);
  }
  const int64_t row = conv.kernel_width * in;
  direct_conv(conv, x.data, dtype, {w.data, dtype, conv.kernel_height * row, row, in, 1}, bias,
              {y.data, dtype, conv.out_height * conv.out_width * out, conv.out_width * out, out}, workspace,
              stream.pool());
}

// --- input gradient --------------------------------------------------------------------------------------

// One side of a class: the pixels first, first + s, ... of dx, and the taps of the kernel that reach them.
struct ClassSide {
  int64_t first, count;        // pixels of dx
  int64_t last_tap, num_taps;  // the taps are last_tap, last_tap - s, ...
  int64_t pad;

  ClassSide(int64_t first, int64_t extent, int64_t kernel, int64_t stride, int64_t forward_pad)
      : first(first) {
    const int64_t first_tap = (first + forward_pad) % stride;
    count = first < extent ? ceil_div(extent - first, stride) : 0;
    num_taps = first_tap < kernel ? ceil_div(kernel - first_tap, stride) : 0;
    last_tap = first_tap + (num_taps - 1) * stride;
    pad = num_taps - 1 - (first + forward_pad) / stride;
  }
};

ConvGeometry class_geometry(const ConvGeometry& conv, const ClassSide& rows, const ClassSide& cols) {
  return {.images = conv.images,
          .in_height = conv.out_height,
          .in_width = conv.out_width,
          .in_channels = conv.out_channels,
          .out_height = rows.count,
          .out_width = cols.count,
          .out_channels = conv.in_channels,
          .kernel_height = rows.num_taps,
          .kernel_width = cols.num_taps,
          .stride = 1,
          .pad_top = rows.pad,
          .pad_left = cols.pad};
}

// fn(rows, cols) for each class of pixels.
template <typename Fn>
void for_each_class(const ConvGeometry& conv, const Fn& fn) {
  for (int64_t a = 0; a < conv.stride; ++a) {
    for (int64_t b = 0; b < conv.stride; ++b) {
      const ClassSide rows(a, conv.in_height, conv.kernel_height, conv.stride, conv.pad_top);
      const ClassSide cols(b, conv.in_width, conv.kernel_width, conv.stride, conv.pad_left);
      if (rows.count > 0 && cols.count > 0) fn(rows, cols);
    }
  }
}

bool some_class_is_empty(const ConvGeometry& conv) {
  return std::min(conv.kernel_height, conv.kernel_width) < conv.stride;
}

size_t grad_input_workspace(const CallSignature& call, int num_threads) {
  const ConvGeometry conv = geometry(call.out[0].shape, call.in[1].shape, call.in[0].shape, *call.attrs);
  const DType dtype = call.in[0].dtype;
  if (is_matrix_product(conv)) {
    return gemm_bytes(num_pixels(conv), conv.in_channels, conv.out_channels, dtype, dtype, num_threads);
  }
  size_t most = 0;
  for_each_class(conv, [&](const ClassSide& rows, const ClassSide& cols) {
    if (rows.num_taps == 0 || cols.num_taps == 0) return;
    most = std::max(most, direct_conv_workspace(class_geometry(conv, rows, cols), dtype, num_threads));
  });
  return most;
}

void grad_input(const KernelArgs& args, Stream& stream) {
  const TensorArg &dy = args.in[0], &w = args.in[1], &dx = args.out[0];
  const ConvGeometry conv = geometry(dx.type.shape, w.type.shape, dy.type.shape, args.attrs);
  const DType dtype = dy.type.dtype;
  const int64_t in = conv.in_channels, out = conv.out_channels;
  if (is_matrix_product(conv)) {
    gemm({.m = num_pixels(conv),
          .n = in,
          .k = out,
          .a = {dy.data, dtype, out, 1},
          .b = {w.data, dtype, in, 1},
          .c = dx.data,
          .c_dtype = dtype,
          .ldc = in},
         args.workspace, stream.pool());
    return;
  }
  if (some_class_is_empty(conv)) {
    const int64_t bytes = dx.type.bytes();
    for_pieces(stream.pool(), bytes, 4 * kElemsPerTask, [&](int64_t begin, int64_t end, int) {
      std::memset(dx.as<std::byte>() + begin, 0, static_cast<size_t>(end - begin));
    });
  }
  const int64_t tap_row = conv.kernel_width * in;
  for_each_class(conv, [&](const ClassSide& rows, const ClassSide& cols) {
    if (rows.num_taps == 0 || cols.num_taps == 0) return;
    const ConvWeight flipped{.data = offset_elems(static_cast<const void*>(w.data), dtype,
                                                  rows.last_tap * tap_row + cols.last_tap * in),
                             .dtype = dtype,
                             .out = 1,
                             .row = -conv.stride * tap_row,
                             .col = -conv.stride * in,
                             .in = conv.kernel_height * tap_row};
    const ConvTarget target{
        .data = offset_elems(dx.data, dtype, (rows.first * conv.in_width + cols.first) * in),
        .dtype = dtype,
        .image = conv.in_height * conv.in_width * in,
        .row = conv.stride * conv.in_width * in,
        .col = conv.stride * in};
    direct_conv(class_geometry(conv, rows, cols), dy.data, dtype, flipped, nullptr, target, args.workspace,
                stream.pool());
  });
}

// --- weight gradient -------------------------------------------------------------------------------------

size_t grad_weight_workspace(const CallSignature& call, int num_threads) {
  const ConvGeometry conv = geometry(call.in[1].shape, call.in[0].shape, call.in[2].shape, *call.attrs);
  if (is_matrix_product(conv)) {
    return gemm_bytes(conv.out_channels, conv.in_channels, num_pixels(conv), call.in[1].dtype, DType::F32,
                      num_threads);
  }
  return conv_grad_weight_workspace(conv, call.in[1].dtype, num_threads);
}

void grad_weight(const KernelArgs& args, Stream& stream) {
  const TensorArg &acc = args.out[0], &x = args.in[1], &dy = args.in[2];
  const ConvGeometry conv = geometry(x.type.shape, acc.type.shape, dy.type.shape, args.attrs);
  const DType dtype = x.type.dtype;
  if (is_matrix_product(conv)) {
    gemm({.m = conv.out_channels,
          .n = conv.in_channels,
          .k = num_pixels(conv),
          .a = {dy.data, dtype, 1, conv.out_channels},
          .b = {x.data, dtype, conv.in_channels, 1},
          .c = acc.data,
          .c_dtype = DType::F32,
          .ldc = conv.in_channels,
          .accumulate = true},
         args.workspace, stream.pool());
    return;
  }
  conv_grad_weight(conv, x.data, dy.data, dtype, acc.as<float>(), args.workspace, stream.pool());
}

bool supports(const CallSignature& call) {
  const DType dtype = call.in[0].dtype;
  return is_storage(dtype) && call.in[1].dtype == dtype && call.out[0].dtype == dtype &&
         (call.in.size() < 3 || call.in[2].dtype == dtype);
}

bool supports_grad_weight(const CallSignature& call) {
  return call.in[0].dtype == DType::F32 && is_storage(call.in[1].dtype) &&
         call.in[2].dtype == call.in[1].dtype;
}

}  // namespace

void add_conv_kernels(KernelRegistry& registry) {
  registry.add({"cpu.conv2d", Op::Conv2d, supports, conv2d_workspace, conv2d});
  registry.add({"cpu.conv2d_grad_input", Op::Conv2dGradInput, supports, grad_input_workspace, grad_input});
  registry.add({"cpu.conv2d_grad_weight", Op::Conv2dGradWeight, supports_grad_weight, grad_weight_workspace,
                grad_weight});
}

}  // namespace tandem::cpu
