// Reference BatchNorm over the rows of several ranks, each of which has equally many.
#include <algorithm>

#include "tandem/kernels/cpu/ref/ref_tensor.h"

namespace tandem::cpu::ref {
namespace {

void run_batch_norm_stats(const KernelArgs& args, Stream&) {
  const TensorArg &x = args.in[0], &parts = args.out[0];
  const int64_t channels = x.type.shape.last(), rows = x.type.shape.rows();
  for (int64_t c = 0; c < channels; ++c) {
    double mean = 0, m2 = 0;
    for (int64_t row = 0; row < rows; ++row) mean += get(x, row * channels + c) / static_cast<double>(rows);
    for (int64_t row = 0; row < rows; ++row) m2 += std::pow(get(x, row * channels + c) - mean, 2);
    set(parts, c, mean);
    set(parts, channels + c, m2);
  }
}

// The distances of all rows from the common mean are those from each rank's, and those between the means.
void run_batch_norm_apply(const KernelArgs& args, Stream&) {
  const TensorArg &x = args.in[0], &gamma = args.in[1], &beta = args.in[2], &parts = args.in[5];
  const TensorArg &running_mean = args.out[3], &running_var = args.out[4];
  const int64_t channels = x.type.shape.last(), rows = x.type.shape.rows(), size = args.attrs.integer("size");
  const double count = static_cast<double>(size * rows), momentum = args.attrs.real("momentum");
  for (int64_t c = 0; c < channels; ++c) {
    const auto rank_mean = [&](int64_t rank) { return get(parts, 2 * rank * channels + c); };
    double mean = 0, m2 = 0;
    for (int64_t rank = 0; rank < size; ++rank) mean += rank_mean(rank) / static_cast<double>(size);
    for (int64_t rank = 0; rank < size; ++rank) {
      m2 += get(parts, (2 * rank + 1) * channels + c) +
            static_cast<double>(rows) * std::pow(rank_mean(rank) - mean, 2);
    }
    const double rstd = 1 / std::sqrt(m2 / count + args.attrs.real("eps"));
    for (int64_t i = c; i < x.elems(); i += channels) {
      set(args.out[0], i, (get(x, i) - mean) * rstd * get(gamma, c) + get(beta, c));
    }
    set(args.out[1], c, mean);
    set(args.out[2], c, rstd);
    const double unbiased = m2 / std::max(count - 1, 1.0);
    set(running_mean, c, (1 - momentum) * get(running_mean, c) + momentum * mean);
    set(running_var, c, (1 - momentum) * get(running_var, c) + momentum * unbiased);
  }
}

void run_batch_norm_grad_stats(const KernelArgs& args, Stream&) {
  const TensorArg &dy = args.in[0], &x = args.in[1], &mean = args.in[2], &rstd = args.in[3];
  const int64_t channels = x.type.shape.last();
  begin_accumulators(args, {1, 2});
  for (int64_t c = 0; c < channels; ++c) {
    double sum_dy = 0, sum_dyx = 0;
    for (int64_t i = c; i < x.elems(); i += channels) {
      sum_dy += get(dy, i);
      sum_dyx += get(dy, i) * (get(x, i) - get(mean, c)) * get(rstd, c);
    }
    set(args.out[0], c, sum_dy);
    set(args.out[0], channels + c, sum_dyx);
    accumulate(args.out[1], c, sum_dyx);
    accumulate(args.out[2], c, sum_dy);
  }
}

void run_batch_norm_grad_apply(const KernelArgs& args, Stream&) {
  const TensorArg &dy = args.in[0], &x = args.in[1], &gamma = args.in[2], &mean = args.in[3],
                  &rstd = args.in[4], &sums = args.in[5];
  const int64_t channels = x.type.shape.last();
  const double count = static_cast<double>(args.attrs.integer("size") * x.type.shape.rows());
  for (int64_t i = 0; i < x.elems(); ++i) {
    const int64_t c = i % channels;
    const double x_hat = (get(x, i) - get(mean, c)) * get(rstd, c);
    const double centred = get(dy, i) - get(sums, c) / count - x_hat * get(sums, channels + c) / count;
    set(args.out[0], i, get(gamma, c) * get(rstd, c) * centred);
  }
}

}  // namespace

void add_batch_norm_sync(KernelRegistry& registry) {
  add(registry, Op::BatchNormStats, run_batch_norm_stats);
  add(registry, Op::BatchNormApply, run_batch_norm_apply);
  add(registry, Op::BatchNormGradStats, run_batch_norm_grad_stats);
  add(registry, Op::BatchNormGradApply, run_batch_norm_grad_apply);
}

}  // namespace tandem::cpu::ref
