// Reference BatchNorm and GroupNorm. Both share mean and rstd over a set of elements: a channel of the whole
// batch, or a group of channels of one image.
#include <algorithm>

#include "tandem/kernels/cpu/ref/ref_tensor.h"

namespace tandem::cpu::ref {
namespace {

// The elements of x split into `num_sets` sets; set_of(i) is the set of element i.
struct Partition {
  int64_t channels, pixels, groups;  // pixels of one image; groups = 0: one set a channel over the batch
  int64_t num_sets, set_elems;

  Partition(const Shape& x, int64_t groups)
      : channels(x.last()),
        pixels(x.rows() / x[0]),
        groups(groups),
        num_sets(groups == 0 ? channels : x[0] * groups),
        set_elems(x.elems() / num_sets) {
    TANDEM_CHECK(groups == 0 || channels % groups == 0, "{} channels in {} groups", channels, groups);
  }
  int64_t set_of(int64_t i) const {
    const int64_t channel = i % channels;
    return groups == 0 ? channel : i / (channels * pixels) * groups + channel / (channels / groups);
  }
};

// What stands behind a norm with {relu: 1}: each step is rounded, as ops of their own would be. The residual
// is the sixth input, where there is one.
void finish_output(const KernelArgs& args, int64_t i) {
  if (args.attrs.integer_or("relu", 0) == 0) return;
  const TensorArg& y = args.out[0];
  if (args.in.size() > 5) set(y, i, get(y, i) + get(args.in[5], i));
  if (get(y, i) < 0) set(y, i, 0);
}

// Writes y, and the statistics to out[1] and out[2]; returns the biased variances.
std::vector<double> normalise(const KernelArgs& args, const Partition& sets) {
  const TensorArg &x = args.in[0], &y = args.out[0];
  const double count = static_cast<double>(sets.set_elems), eps = args.attrs.real("eps");
  std::vector<double> mean(static_cast<size_t>(sets.num_sets)), variance(mean);
  for (int64_t i = 0; i < x.elems(); ++i) mean[static_cast<size_t>(sets.set_of(i))] += get(x, i) / count;
  for (int64_t i = 0; i < x.elems(); ++i) {
    const auto s = static_cast<size_t>(sets.set_of(i));
    variance[s] += std::pow(get(x, i) - mean[s], 2) / count;
  }
  for (int64_t i = 0; i < x.elems(); ++i) {
    const auto s = static_cast<size_t>(sets.set_of(i));
    const int64_t c = i % sets.channels;
    set(y, i, (get(x, i) - mean[s]) / std::sqrt(variance[s] + eps) * get(args.in[1], c) + get(args.in[2], c));
    finish_output(args, i);
  }
  for (int64_t s = 0; s < sets.num_sets; ++s) {
    set(args.out[1], s, mean[static_cast<size_t>(s)]);
    set(args.out[2], s, 1 / std::sqrt(variance[static_cast<size_t>(s)] + eps));
  }
  return variance;
}

// The running variance takes the unbiased estimate, the normalisation the biased one.
void run_batch_norm(const KernelArgs& args, Stream&) {
  const Partition sets(args.in[0].type.shape, 0);
  const std::vector<double> variance = normalise(args, sets);
  const double momentum = args.attrs.real("momentum"), count = static_cast<double>(sets.set_elems);
  const TensorArg &running_mean = args.out[3], &running_var = args.out[4];
  for (int64_t c = 0; c < sets.channels; ++c) {
    const double unbiased = variance[static_cast<size_t>(c)] * count / std::max(count - 1, 1.0);
    set(running_mean, c, (1 - momentum) * get(running_mean, c) + momentum * get(args.out[1], c));
    set(running_var, c, (1 - momentum) * get(running_var, c) + momentum * unbiased);
  }
}

void run_batch_norm_infer(const KernelArgs& args, Stream&) {
  const TensorArg &x = args.in[0], &y = args.out[0];
  const int64_t channels = x.type.shape.last();
  for (int64_t i = 0; i < x.elems(); ++i) {
    const int64_t c = i % channels;
    const double x_hat =
        (get(x, i) - get(args.in[3], c)) / std::sqrt(get(args.in[4], c) + args.attrs.real("eps"));
    set(y, i, x_hat * get(args.in[1], c) + get(args.in[2], c));
    finish_output(args, i);
  }
}

void run_group_norm(const KernelArgs& args, Stream&) {
  normalise(args, Partition(args.in[0].type.shape, args.attrs.integer("groups")));
}

// With g = dy * gamma and means over the set: dx = rstd * (g - mean(g) - x_hat * mean(g * x_hat)).
void normalise_grad(const KernelArgs& args, const Partition& sets) {
  const TensorArg &dy = args.in[0], &x = args.in[1], &gamma = args.in[2], &mean = args.in[3],
                  &rstd = args.in[4];
  const double count = static_cast<double>(sets.set_elems);
  std::vector<double> mean_g(static_cast<size_t>(sets.num_sets)), mean_gx(mean_g);
  std::vector<double> dgamma(static_cast<size_t>(sets.channels)), dbeta(dgamma);
  const auto x_hat = [&](int64_t i) {
    return (get(x, i) - get(mean, sets.set_of(i))) * get(rstd, sets.set_of(i));
  };
  const bool relu = args.attrs.integer_or("relu", 0) != 0;
  const auto gradient = [&](int64_t i) {
    const int64_t c = i % sets.channels;
    return relu && !(x_hat(i) * get(gamma, c) + get(args.in[7], c) > 0) ? 0.0 : get(dy, i);
  };
  begin_accumulators(args, {1, 2});
  for (int64_t i = 0; i < x.elems(); ++i) {
    const auto s = static_cast<size_t>(sets.set_of(i)), c = static_cast<size_t>(i % sets.channels);
    const double g = gradient(i) * get(gamma, i % sets.channels);
    mean_g[s] += g / count;
    mean_gx[s] += g * x_hat(i) / count;
    dgamma[c] += gradient(i) * x_hat(i);
    dbeta[c] += gradient(i);
  }
  for (int64_t i = 0; i < x.elems(); ++i) {
    const auto s = static_cast<size_t>(sets.set_of(i));
    const double g = gradient(i) * get(gamma, i % sets.channels);
    set(args.out[0], i, get(rstd, sets.set_of(i)) * (g - mean_g[s] - x_hat(i) * mean_gx[s]));
  }
  for (int64_t c = 0; c < sets.channels; ++c) {
    accumulate(args.out[1], c, dgamma[static_cast<size_t>(c)]);
    accumulate(args.out[2], c, dbeta[static_cast<size_t>(c)]);
  }
}

void run_batch_norm_grad(const KernelArgs& args, Stream&) {
  normalise_grad(args, Partition(args.in[1].type.shape, 0));
}

void run_group_norm_grad(const KernelArgs& args, Stream&) {
  normalise_grad(args, Partition(args.in[1].type.shape, args.attrs.integer("groups")));
}

}  // namespace

void add_image_norm(KernelRegistry& registry) {
  add(registry, Op::BatchNorm, run_batch_norm);
  add(registry, Op::BatchNormInfer, run_batch_norm_infer);
  add(registry, Op::BatchNormGrad, run_batch_norm_grad);
  add(registry, Op::GroupNorm, run_group_norm);
  add(registry, Op::GroupNormGrad, run_group_norm_grad);
}

}  // namespace tandem::cpu::ref
