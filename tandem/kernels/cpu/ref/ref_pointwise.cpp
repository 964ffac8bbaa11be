// Reference pointwise ops. An output may share its first input's bytes: each element is read, then written.
#include "tandem/kernels/cpu/ref/ref_tensor.h"
#include "tandem/runtime/dropout_mask.h"

namespace tandem::cpu::ref {
namespace {

template <typename Fn>
void map(const KernelArgs& args, Fn&& fn) {
  for (int64_t i = 0; i < args.out[0].elems(); ++i) set(args.out[0], i, fn(get(args.in[0], i)));
}

template <typename Fn>
void map2(const KernelArgs& args, Fn&& fn) {
  for (int64_t i = 0; i < args.out[0].elems(); ++i) {
    set(args.out[0], i, fn(get(args.in[0], i), get(args.in[1], i)));
  }
}

void run_add(const KernelArgs& args, Stream&) {
  map2(args, [](double a, double b) { return a + b; });
}

void run_scale(const KernelArgs& args, Stream&) {
  const double factor = args.attrs.real("factor");
  map(args, [factor](double x) { return factor * x; });
}

void run_gelu(const KernelArgs& args, Stream&) { map(args, gelu); }

void run_gelu_grad(const KernelArgs& args, Stream&) {
  map2(args, [](double dy, double x) { return dy * gelu_slope(x); });
}

void run_relu(const KernelArgs& args, Stream&) {
  map(args, [](double x) { return x < 0 ? 0 : x; });  // a NaN stays one
}

void run_relu_grad(const KernelArgs& args, Stream&) {
  map2(args, [](double dy, double y) { return y > 0 ? dy : 0; });
}

void run_softcap(const KernelArgs& args, Stream&) {
  const double cap = args.attrs.real("cap");
  map(args, [cap](double x) { return cap * std::tanh(x / cap); });
}

void run_softcap_grad(const KernelArgs& args, Stream&) {
  const double cap = args.attrs.real("cap");
  map2(args, [cap](double dy, double x) { return dy * (1 - std::pow(std::tanh(x / cap), 2)); });
}

void run_dropout(const KernelArgs& args, Stream&) {
  const DropoutMask mask = dropout_mask(args);
  const uint64_t first = first_sample(args.in[1].as<const int32_t>());
  const double scale = 1 / (1 - args.attrs.real("rate"));
  for (int64_t i = 0; i < args.out[0].elems(); ++i) {
    const DropoutRow row = dropout_row(mask, i / mask.width);
    const int64_t element = row.begin + i % mask.width;
    const DropoutKey key = dropout_key(mask, first + static_cast<uint64_t>(row.sample));
    const bool dropped = dropout_block(key, element / 4).word[element % 4] < mask.threshold;
    set(args.out[0], i, dropped ? 0 : get(args.in[0], i) * scale);
  }
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Silu {
  static double value(double x) { return x * sigmoid(x); }
  static double slope(double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }
};
struct Gelu {
  static double value(double x) { return gelu(x); }
  static double slope(double x) { return gelu_slope(x); }
};

template <typename Activation>
void run_gated(const KernelArgs& args, Stream&) {
  const TensorArg &gate_up = args.in[0], &y = args.out[0];
  const int64_t cols = y.type.shape.last();
  for (int64_t i = 0; i < y.elems(); ++i) {
    const int64_t at = i / cols * 2 * cols + i % cols;
    set(y, i, Activation::value(get(gate_up, at)) * get(gate_up, at + cols));
  }
}

// dgate_up may be gate_up, and y may be dy: an element is read before it is written.
template <typename Activation>
void run_gated_grad(const KernelArgs& args, Stream&) {
  const TensorArg &dy = args.in[0], &gate_up = args.in[1], &dgate_up = args.out[0];
  const bool again = args.out.size() > 1;
  const int64_t cols = dy.type.shape.last();
  for (int64_t i = 0; i < dy.elems(); ++i) {
    const int64_t at = i / cols * 2 * cols + i % cols;
    const double gate = get(gate_up, at), up = get(gate_up, at + cols), d = get(dy, i);
    set(dgate_up, at, d * up * Activation::slope(gate));
    set(dgate_up, at + cols, d * Activation::value(gate));
    if (again) set(args.out[1], i, Activation::value(gate) * up);
  }
}

}  // namespace

void add_pointwise(KernelRegistry& registry) {
  add(registry, Op::Add, run_add);
  add(registry, Op::Scale, run_scale);
  add(registry, Op::Gelu, run_gelu);
  add(registry, Op::GeluGrad, run_gelu_grad);
  add(registry, Op::Relu, run_relu);
  add(registry, Op::ReluGrad, run_relu_grad);
  add(registry, Op::Softcap, run_softcap);
  add(registry, Op::Dropout, run_dropout);
  add(registry, Op::SoftcapGrad, run_softcap_grad);
  add(registry, Op::Swiglu, run_gated<Silu>);
  add(registry, Op::SwigluGrad, run_gated_grad<Silu>);
  add(registry, Op::Geglu, run_gated<Gelu>);
  add(registry, Op::GegluGrad, run_gated_grad<Gelu>);
}

}  // namespace tandem::cpu::ref
