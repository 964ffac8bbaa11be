// Reference losses: softmax cross-entropy on logits, or on the product x w^T without keeping it.
#include <algorithm>

#include "tandem/base/exact/fixed_point.h"
#include "tandem/ir/loss_terms.h"
#include "tandem/kernels/cpu/ref/ref_tensor.h"

namespace tandem::cpu::ref {
namespace {

struct LossSums {
  double nll = 0;
  double correct = 0;
  void store(const TensorArg& stats) const {
    set(stats, 0, nll);
    set(stats, 1, correct);
  }
};

// The second label of a row, and the share of the first.
struct Partner {
  int64_t label = -1;
  double share = 1;
};

// Adds one row's loss to `sums` and turns its logits into their gradient (ir/loss_terms.h) times scale;
// target -1 is ignored.
void softmax_row(std::vector<double>& logits, int64_t target, double scale, LossSums& sums,
                 const LossTerms& terms = {}, const Partner& partner = {}) {
  if (target < 0) {
    std::fill(logits.begin(), logits.end(), 0.0);
    return;
  }
  TANDEM_CHECK(target < static_cast<int64_t>(logits.size()), "target {} of {} classes", target,
               logits.size());
  const auto label = static_cast<size_t>(target);
  const auto largest = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double logit : logits) sum += std::exp(logit - *largest);
  const double log_sum = *largest + std::log(sum);
  const auto count = static_cast<double>(logits.size());
  double mean = 0;
  for (double logit : logits) mean += logit / count;
  const size_t other = partner.label < 0 ? label : static_cast<size_t>(partner.label);
  const double wanted = partner.share * logits[label] + (1 - partner.share) * logits[other];
  sums.nll += log_sum - (1 - terms.smoothing) * wanted - terms.smoothing * mean + terms.z * log_sum * log_sum;
  sums.correct += largest - logits.begin() == target ? 1 : 0;
  for (double& logit : logits) {
    const double softmax = std::exp(logit - log_sum);
    logit = (softmax * (1 + 2 * terms.z * log_sum) - terms.smoothing / count) * scale;
  }
  logits[label] -= (1 - terms.smoothing) * partner.share * scale;
  logits[other] -= (1 - terms.smoothing) * (1 - partner.share) * scale;
}

void run_cross_entropy(const KernelArgs& args, Stream&) {
  const TensorArg &logits = args.in[0], &targets = args.in[1];
  const int64_t vocab = logits.type.shape.last();
  std::vector<double> row(static_cast<size_t>(vocab));
  LossSums sums;
  for (int64_t n = 0; n < logits.type.shape.rows(); ++n) {
    for (int64_t v = 0; v < vocab; ++v) row[static_cast<size_t>(v)] = get(logits, n * vocab + v);
    softmax_row(row, index(targets, n), 1, sums);
  }
  sums.store(args.out[0]);
}

void run_cross_entropy_grad(const KernelArgs& args, Stream&) {
  const TensorArg &logits = args.in[0], &targets = args.in[1], &dlogits = args.out[0];
  const int64_t vocab = logits.type.shape.last();
  std::vector<double> row(static_cast<size_t>(vocab));
  LossSums sums;
  for (int64_t n = 0; n < logits.type.shape.rows(); ++n) {
    for (int64_t v = 0; v < vocab; ++v) row[static_cast<size_t>(v)] = get(logits, n * vocab + v);
    const Partner partner =
        args.in.size() > 3 ? Partner{index(args.in[3], n), get(args.in[4], n)} : Partner();
    softmax_row(row, index(targets, n), get(args.in[2], 0), sums, read_loss_terms(args.attrs), partner);
    for (int64_t v = 0; v < vocab; ++v) set(dlogits, n * vocab + v, row[static_cast<size_t>(v)]);
  }
  sums.store(args.out[1]);
}

// What is done to the logits of a linear form: each step is rounded to the storage type, as a single op's
// result is.
class LogitSteps {
 public:
  LogitSteps(const KernelArgs& args)
      : scale_(args.attrs.real_or("scale", 1)),
        cap_(args.attrs.real_or("softcap", 0)),
        scaled_(args.attrs.has("scale")),
        type_(args.in[0].type.dtype) {}

  // Row n of x times the transpose of w, and what follows.
  void make(const TensorArg& x, const TensorArg& w, int64_t n, std::vector<double>& logits) {
    const int64_t dim = x.type.shape.last();
    before_cap_.clear();
    for (size_t v = 0; v < logits.size(); ++v) {
      double sum = 0;
      for (int64_t i = 0; i < dim; ++i)
        sum += get(x, n * dim + i) * get(w, static_cast<int64_t>(v) * dim + i);
      if (scaled_) sum = scale_ * rounded(sum);
      if (cap_ != 0) before_cap_.push_back(rounded(sum));
      logits[v] = cap_ != 0 ? cap_ * std::tanh(before_cap_[v] / cap_) : sum;
    }
  }
  // From the gradient of the logits to that of the product.
  void turn_back(std::vector<double>& gradient) const {
    for (size_t v = 0; v < gradient.size(); ++v) {
      if (cap_ != 0) gradient[v] *= 1 - std::pow(std::tanh(before_cap_[v] / cap_), 2);
      gradient[v] *= scale_;
    }
  }

 private:
  double rounded(double value) const {
    std::byte bytes[8];
    const TensorArg one{bytes, {type_, {1}}};
    set(one, 0, value);
    return get(one, 0);
  }

  double scale_, cap_;
  bool scaled_;
  DType type_;
  std::vector<double> before_cap_;
};

void run_linear_cross_entropy(const KernelArgs& args, Stream&) {
  const TensorArg &x = args.in[0], &w = args.in[1], &targets = args.in[2];
  std::vector<double> logits(static_cast<size_t>(w.type.shape.rows()));
  LossSums sums;
  LogitSteps steps(args);
  for (int64_t n = 0; n < x.type.shape.rows(); ++n) {
    steps.make(x, w, n, logits);
    softmax_row(logits, index(targets, n), 1, sums);
  }
  sums.store(args.out[0]);
}

void run_linear_cross_entropy_grad(const KernelArgs& args, Stream&) {
  const bool frozen = args.out.size() < 3;
  if (!frozen) begin_accumulators(args, {2});
  const TensorArg &x = args.in[0], &w = args.in[1], &targets = args.in[2], &scale = args.in[3];
  const TensorArg &dx = args.out[0], &stats = args.out[1];
  const int64_t dim = x.type.shape.last();
  std::vector<double> logits(static_cast<size_t>(w.type.shape.rows()));
  std::vector<double> dw(static_cast<size_t>(w.elems()));
  LossSums sums;
  LogitSteps steps(args);
  for (int64_t n = 0; n < x.type.shape.rows(); ++n) {
    steps.make(x, w, n, logits);
    softmax_row(logits, index(targets, n), get(scale, 0), sums, read_loss_terms(args.attrs));
    steps.turn_back(logits);
    for (int64_t i = 0; i < dim; ++i) {
      double sum = 0;
      for (size_t v = 0; v < logits.size(); ++v) {
        sum += logits[v] * get(w, static_cast<int64_t>(v) * dim + i);
        dw[v * static_cast<size_t>(dim) + static_cast<size_t>(i)] += logits[v] * get(x, n * dim + i);
      }
      set(dx, n * dim + i, sum);
    }
  }
  for (int64_t i = 0; !frozen && i < w.elems(); ++i) accumulate(args.out[2], i, dw[static_cast<size_t>(i)]);
  sums.store(stats);
}

void run_add_stats(const KernelArgs& args, Stream&) {
  const bool fixed = args.attrs.integer_or("fixed", 0) != 0;
  for (int64_t i = 0; i < args.in[1].elems(); ++i) {
    const double stat = get(args.in[1], i);
    accumulate(args.out[0], args.attrs.integer_or("at", 0) + i, fixed ? to_fixed_point(stat) : stat);
  }
}

void run_measure(const KernelArgs& args, Stream&) {
  const TensorArg& x = args.in[0];
  const bool squares = args.attrs.integer("squares") != 0;
  double sum = 0;
  for (int64_t i = 0; i < x.elems(); ++i) sum += squares ? get(x, i) * get(x, i) : get(x, i);
  set(args.out[0], 0, sum / static_cast<double>(x.elems()));
}

}  // namespace

void add_loss(KernelRegistry& registry) {
  add(registry, Op::CrossEntropy, run_cross_entropy);
  add(registry, Op::CrossEntropyGrad, run_cross_entropy_grad);
  add(registry, Op::LinearCrossEntropy, run_linear_cross_entropy);
  add(registry, Op::LinearCrossEntropyGrad, run_linear_cross_entropy_grad);
  add(registry, Op::AddStats, run_add_stats);
  add(registry, Op::Measure, run_measure);
}

}  // namespace tandem::cpu::ref
