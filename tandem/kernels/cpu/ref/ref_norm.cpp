// Reference LayerNorm and RMSNorm, alone or after a residual add. Both normalise a row: x_hat =
// (x - mean) * rstd, where RMSNorm's mean is 0. The statistics are those that are stored, so that the
// gradient, which reads them, can give y again.
#include "tandem/kernels/cpu/ref/ref_tensor.h"

namespace tandem::cpu::ref {
namespace {

struct RowStats {
  double mean, rstd;
};

RowStats row_stats(const TensorArg& x, int64_t row, bool centred, double eps) {
  const int64_t cols = x.type.shape.last();
  double mean = 0, square = 0;
  for (int64_t i = 0; centred && i < cols; ++i) mean += get(x, row * cols + i) / static_cast<double>(cols);
  for (int64_t i = 0; i < cols; ++i) square += std::pow(get(x, row * cols + i) - mean, 2);
  return {mean, 1 / std::sqrt(square / static_cast<double>(cols) + eps)};
}

// What multiplies element i: gamma, or with {plus_one} 1 + gamma.
struct Gain {
  const TensorArg& gamma;
  double plus;

  Gain(const TensorArg& of, const Attrs& attrs) : gamma(of), plus(attrs.integer_or("plus_one", 0) != 0) {}
  double operator[](int64_t i) const { return plus + get(gamma, i); }
};

double output(double x_hat, const Gain& gain, const TensorArg& beta, int64_t i) {
  return x_hat * gain[i] + (beta.data != nullptr ? get(beta, i) : 0);
}

// Arguments of any of the four forward ops; beta and mean have no data for RMSNorm.
struct Forward {
  TensorArg x, gamma, beta, y, mean, rstd;
};

void normalise(const Forward& f, const Attrs& attrs) {
  const double eps = attrs.real("eps");
  const Gain gain(f.gamma, attrs);
  const int64_t rows = f.x.type.shape.rows(), cols = f.x.type.shape.last();
  const bool centred = f.beta.data != nullptr;
  for (int64_t row = 0; row < rows; ++row) {
    const RowStats stats = row_stats(f.x, row, centred, eps);
    if (centred) set(f.mean, row, stats.mean);
    set(f.rstd, row, stats.rstd);
    const double mean = centred ? get(f.mean, row) : 0, rstd = get(f.rstd, row);
    for (int64_t i = 0; i < cols; ++i) {
      const double x_hat = (get(f.x, row * cols + i) - mean) * rstd;
      set(f.y, row * cols + i, output(x_hat, gain, f.beta, i));
    }
  }
}

void add_residual(const KernelArgs& args) {
  for (int64_t i = 0; i < args.out[0].elems(); ++i)
    set(args.out[0], i, get(args.in[0], i) + get(args.in[1], i));
}

void run_layer_norm(const KernelArgs& args, Stream&) {
  normalise({args.in[0], args.in[1], args.in[2], args.out[0], args.out[1], args.out[2]}, args.attrs);
}

void run_add_layer_norm(const KernelArgs& args, Stream&) {
  add_residual(args);
  normalise({args.out[0], args.in[2], args.in[3], args.out[1], args.out[2], args.out[3]}, args.attrs);
}

void run_rms_norm(const KernelArgs& args, Stream&) {
  normalise({args.in[0], args.in[1], {}, args.out[0], {}, args.out[1]}, args.attrs);
}

void run_add_rms_norm(const KernelArgs& args, Stream&) {
  add_residual(args);
  normalise({args.out[0], args.in[2], {}, args.out[1], {}, args.out[2]}, args.attrs);
}

// dbeta and mean have no data for RMSNorm, dres has none where no residual gradient is added.
struct Backward {
  TensorArg dy, x, gamma, mean, rstd, dres, dx, dgamma, dbeta;
  TensorArg dx_sums;  // none without {sums}
  TensorArg beta, y;  // none without {again}; no beta for RMSNorm
};

// With g = dy * gain: dx = rstd * (g - mean(g) - x_hat * mean(g * x_hat)), without mean(g) for RMSNorm.
// dx may share dy's bytes, so a row is read whole before it is written.
void normalise_grad(const Backward& b, const Attrs& attrs) {
  const Gain gain(b.gamma, attrs);
  const int64_t rows = b.x.type.shape.rows(), cols = b.x.type.shape.last();
  const bool centred = b.dbeta.data != nullptr;
  const double count = static_cast<double>(cols);
  std::vector<double> dgamma(static_cast<size_t>(cols)), dbeta(dgamma), g(dgamma), x_hat(dgamma);
  for (int64_t row = 0; row < rows; ++row) {
    const double mean = centred ? get(b.mean, row) : 0, rstd = get(b.rstd, row);
    double mean_g = 0, mean_gx = 0;
    for (int64_t i = 0; i < cols; ++i) {
      const auto c = static_cast<size_t>(i);
      const double dy = get(b.dy, row * cols + i);
      x_hat[c] = (get(b.x, row * cols + i) - mean) * rstd;
      g[c] = dy * gain[i];
      dgamma[c] += dy * x_hat[c];
      dbeta[c] += dy;
      mean_g += centred ? g[c] / count : 0;
      mean_gx += g[c] * x_hat[c] / count;
    }
    for (int64_t i = 0; i < cols; ++i) {
      const auto c = static_cast<size_t>(i);
      const double residual = b.dres.data != nullptr ? get(b.dres, row * cols + i) : 0;
      set(b.dx, row * cols + i, rstd * (g[c] - mean_g - x_hat[c] * mean_gx) + residual);
      if (b.y.data != nullptr) set(b.y, row * cols + i, output(x_hat[c], gain, b.beta, i));
    }
  }
  for (int64_t i = 0; i < cols; ++i) {
    accumulate(b.dgamma, i, dgamma[static_cast<size_t>(i)]);
    if (centred) accumulate(b.dbeta, i, dbeta[static_cast<size_t>(i)]);
    if (b.dx_sums.data == nullptr) continue;
    double sum = 0;
    for (int64_t row = 0; row < rows; ++row) sum += get(b.dx, row * cols + i);
    accumulate(b.dx_sums, i, sum);
  }
}

// Behind `fixed` inputs: [beta] [dres] [acc_bias], the first where {again} and the last where {sums} says so.
void add_optional(Backward& b, const KernelArgs& args, size_t fixed) {
  const bool sums = args.attrs.integer_or("sums", 0) != 0;
  if (args.attrs.integer_or("again", 0) != 0) {
    const bool centred = b.dbeta.data != nullptr;
    b.y = args.out[centred ? 3 : 2];
    if (centred) b.beta = args.in[fixed++];
  }
  if (args.in.size() > fixed + (sums ? 1 : 0)) b.dres = args.in[fixed];
  if (!sums) return;
  b.dx_sums = args.out.back();
  begin_accumulators(args, {args.out.size() - 1});
}

void run_layer_norm_grad(const KernelArgs& args, Stream&) {
  begin_accumulators(args, {1, 2});
  Backward b{args.in[0],  args.in[1],  args.in[2],  args.in[3], args.in[4], {},
             args.out[0], args.out[1], args.out[2], {},         {},         {}};
  add_optional(b, args, 7);
  normalise_grad(b, args.attrs);
}

void run_rms_norm_grad(const KernelArgs& args, Stream&) {
  begin_accumulators(args, {1});
  Backward b{args.in[0],  args.in[1],  args.in[2], {}, args.in[3], {},
             args.out[0], args.out[1], {},         {}, {},         {}};
  add_optional(b, args, 5);
  normalise_grad(b, args.attrs);
}

}  // namespace

void add_norm(KernelRegistry& registry) {
  add(registry, Op::LayerNorm, run_layer_norm);
  add(registry, Op::AddLayerNorm, run_add_layer_norm);
  add(registry, Op::LayerNormGrad, run_layer_norm_grad);
  add(registry, Op::RmsNorm, run_rms_norm);
  add(registry, Op::AddRmsNorm, run_add_rms_norm);
  add(registry, Op::RmsNormGrad, run_rms_norm_grad);
}

}  // namespace tandem::cpu::ref
