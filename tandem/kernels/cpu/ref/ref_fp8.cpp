// Reference products of 8-bit floats, and how tensors are stored in them. Quantizing is exact but for the one
// rounding: scales are powers of two.
#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/ir/infer.h"
#include "tandem/kernels/cpu/ref/ref_tensor.h"

namespace tandem::cpu::ref {
namespace {

double power_of_two_above(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);  // in [0.5, 1)
  return std::ldexp(1.0, std::clamp(fraction == 0.5 ? exponent - 1 : exponent, -100, 100));
}

double largest(const TensorArg& x) {
  double most = 0;
  for (int64_t i = 0; i < x.elems(); ++i) most = std::fmax(most, std::fabs(get(x, i)));
  return most;
}

void set_scale(const TensorArg& scale, int64_t slot, double value) {
  for (int64_t i = 0; i < 4; ++i) set(scale, 4 * slot + i, value);
}
double scale_at(const TensorArg& scale, int64_t slot) { return get(scale, 4 * slot); }

void run_scales(const KernelArgs& args, Stream&) {
  const double unknown = std::ldexp(1.0, static_cast<int>(args.attrs.integer("unknown")));
  const int64_t n = args.out[0].type.shape[0];
  for (int64_t i = 0; i < n; ++i) {
    double range = 0;
    for (int64_t k = i; k < args.in[0].elems(); k += n) range = std::fmax(range, get(args.in[0], k));
    set_scale(args.out[0], i, range == 0 ? unknown : power_of_two_above(range));
  }
}

// Of pieces of weights: what their scales are to be made of.
void run_weight_ranges(const KernelArgs& args) {
  const std::vector<int64_t> slots = parse_numbers(args.attrs.text("slots"));
  TANDEM_CHECK(slots.size() == args.in.size(), "{} slots for {} pieces", slots.size(), args.in.size());
  for (int64_t i = 0; i < args.out[0].elems(); ++i) set(args.out[0], i, 0);
  for (size_t i = 0; i < slots.size(); ++i) {
    const double need = static_cast<float>(largest(args.in[i])) / kLargestE4M3;
    if (std::isfinite(need)) set(args.out[0], slots[i], std::fmax(get(args.out[0], slots[i]), need));
  }
}

void run_weight_scales(const KernelArgs& args, Stream&) {
  if (args.attrs.has("slots")) return run_weight_ranges(args);
  for (size_t i = 0; i < args.in.size(); ++i) {
    const double need = static_cast<float>(largest(args.in[i])) / kLargestE4M3;
    set_scale(args.out[0], static_cast<int64_t>(i),
              need == 0 || !std::isfinite(need) ? 1 : power_of_two_above(need));
  }
}

// A rank's part of a unit: pieces of weights, each with its scale.
void quantize_pieces(const KernelArgs& args) {
  const std::vector<int64_t> numbers = parse_numbers(args.attrs.text("pieces"));
  for (size_t i = 0; i + 2 < numbers.size(); i += 3) {
    const double scale = scale_at(args.in[1], numbers[i]);
    for (int64_t k = numbers[i + 1]; k < numbers[i + 1] + numbers[i + 2]; ++k)
      set(args.out[0], k, get(args.in[0], k) / scale);
  }
}

// `rest`: scale [, need].
void quantize(const TensorArg& x, std::span<const TensorArg> rest, const KernelArgs& args) {
  const int64_t slot = args.attrs.integer("slot"), rows = x.type.shape.rows(), cols = x.type.shape.last();
  const double scale = is_fp8(x.type.dtype) ? 1 : scale_at(rest[0], slot);  // it was quantized before
  size_t next = 0;
  if (args.attrs.integer("rows") != 0) {
    const TensorArg& q = args.out[next++];
    for (int64_t i = 0; i < x.elems(); ++i) set(q, i, get(x, i) / scale);
  }
  if (args.attrs.integer("columns") != 0) {
    const TensorArg& q = args.out[next++];
    for (int64_t i = 0; i < x.elems(); ++i) set(q, i % cols * rows + i / cols, get(x, i) / scale);
  }
  if (rest.size() < 2) return;
  const double need = largest(x) / largest_fp8(parse_dtype(args.attrs.text("dtype")));
  set(args.out[next], slot, std::fmax(get(rest[1], slot), need));
}

void run_quantize(const KernelArgs& args, Stream&) {
  if (args.attrs.has("pieces")) return quantize_pieces(args);
  quantize(args.in[0], args.in.subspan(1), args);
}

// What the op without the quantizing makes, in its storage type, goes through memory of its own.
void quantize_result_of(Op op, size_t num_in, const TensorType& type, const KernelArgs& args,
                        Stream& stream) {
  static const KernelRegistry makers = [] {
    KernelRegistry registry;
    add_pointwise(registry);
    return registry;
  }();
  std::vector<std::byte> memory(static_cast<size_t>(type.bytes()));
  const TensorArg made{memory.data(), type};
  makers.by_name("ref." + std::string(op_name(op)))
      .run({args.in.first(num_in), {&made, 1}, args.attrs, {}}, stream);
  quantize(made, args.in.subspan(num_in), args);
}

void run_swiglu(const KernelArgs& args, Stream& stream) {
  TensorType type = args.in[0].type;
  type.shape = Shape({type.shape.rows(), type.shape.last() / 2});
  quantize_result_of(Op::Swiglu, 1, type, args, stream);
}
void run_swiglu_grad(const KernelArgs& args, Stream& stream) {
  quantize_result_of(Op::SwigluGrad, 2, args.in[1].type, args, stream);
}

// a b^T; `first`: a, b, scale_a, scale_b.
template <typename Store>
void product(std::span<const TensorArg> first, const Attrs& attrs, Store&& store) {
  const TensorArg &a = first[0], &b = first[1];
  const int64_t m = a.type.shape.rows(), n = b.type.shape.rows(), k = a.type.shape.last();
  const double scale =
      scale_at(first[2], attrs.integer("slot_a")) * scale_at(first[3], attrs.integer("slot_b"));
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t col = 0; col < n; ++col) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += get(a, row * k + p) * get(b, col * k + p);
      store(row * n + col, col, sum * scale);
    }
  }
}

void run_matmul(const KernelArgs& args, Stream&) {
  product(args.in, args.attrs, [&](int64_t i, int64_t col, double value) {
    set(args.out[0], i, value + (args.in.size() > 4 ? get(args.in[4], col) : 0));
  });
}

void run_matmul_acc(const KernelArgs& args, Stream&) {
  begin_accumulators(args, {0});
  product(args.in.subspan(1), args.attrs,
          [&](int64_t i, int64_t, double value) { accumulate(args.out[0], i, value); });
}

void run_ranges(const KernelArgs& args, Stream&) {
  const int64_t n = args.out[0].elems();
  for (int64_t i = 0; i < n; ++i) {
    const double range = get(args.in[0], i);
    double need = get(args.in[1], i);
    for (int64_t k = i; args.in.size() > 2 && k < args.in[2].elems(); k += n)
      need = std::fmax(need, get(args.in[2], k));
    if (std::isfinite(need)) set(args.out[0], i, std::fmax(need, range * 0.875));
    set(args.out[1], i, 0);
  }
}

}  // namespace

void add_fp8(KernelRegistry& registry) {
  add(registry, Op::Fp8Scales, run_scales);
  add(registry, Op::Fp8WeightScales, run_weight_scales);
  add(registry, Op::Fp8Quantize, run_quantize);
  add(registry, Op::Fp8Swiglu, run_swiglu);
  add(registry, Op::Fp8SwigluGrad, run_swiglu_grad);
  add(registry, Op::Fp8Matmul, run_matmul);
  add(registry, Op::Fp8MatmulAcc, run_matmul_acc);
  add(registry, Op::Fp8Ranges, run_ranges);
}

}  // namespace tandem::cpu::ref
