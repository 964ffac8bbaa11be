// One pass over a row for its loss, a second that turns logits into their gradient where they stand.
#include "tandem/kernels/cpu/loss/cross_entropy_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/loss/cross_entropy_rows.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/loss/logit_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

// Whether the first of the row's maxima is the target.
template <typename S>
bool predicts(const S* row, int32_t target, float largest) {
  if (scalar_float(row[target]) != largest) return false;
  const float before = block_max(row, static_cast<size_t>(target));
  return before < largest || target == 0;
}

// What a row should predict: its target, and its partner by the rest.
struct Labels {
  int32_t target;
  int32_t partner;
  double share = 1;
};

// The loss of a row with terms or two labels, whose logits become their gradient.
template <typename S>
double turn_row(S* row, size_t vocab, const Labels& labels, const RowMass& mass, double scale,
                const LossTerms& terms) {
  const auto margin_of = [&](int32_t label) {
    return static_cast<double>(scalar_float(row[label])) - mass.largest;
  };
  const double margin = margin_of(labels.target), other = margin_of(labels.partner);
  const bool same = labels.partner == labels.target;
  const double share = same ? 1 : labels.share;
  const double log_sum = std::log(mass.sum), z = mass.largest + log_sum;
  const double mean = terms.smoothing == 0 ? 0 : row_mean(row, vocab) - mass.largest;
  const double weight = 1 + 2 * terms.z * z, each = terms.smoothing / static_cast<double>(vocab);
  exp_row(row, vocab, mass.largest, static_cast<float>(scale * weight / mass.sum),
          static_cast<float>(each * scale));
  const auto store = [&](int32_t label, double at, double part) {
    const double gradient = std::exp(at) / mass.sum * weight - each - (1 - terms.smoothing) * part;
    store_scalar(static_cast<float>(gradient * scale), row + label);
  };
  store(labels.target, margin, share);
  if (!same) store(labels.partner, other, 1 - share);
  const double wanted = same ? margin : share * margin + (1 - share) * other;
  return log_sum - (1 - terms.smoothing) * wanted - terms.smoothing * mean + terms.z * z * z;
}

template <typename S, bool kGrad>
cpu::LossSums sum_rows(const cpu::LogitRows& in, int64_t begin, int64_t end, float scale,
                       const LossTerms& terms) {
  const auto n = static_cast<size_t>(in.vocab);
  cpu::LossSums sums;
  for (int64_t r = begin; r < end; ++r) {
    S* row = static_cast<S*>(in.logits) + r * in.vocab;
    const int32_t target = in.targets[r];
    if (target < 0) {
      if (kGrad) std::memset(row, 0, n * sizeof(S));
      continue;
    }
    const RowMass mass = row_mass(row, n);
    const double margin = static_cast<double>(scalar_float(row[target])) - mass.largest;
    sums.correct += predicts(row, target, mass.largest) ? 1 : 0;
    if (kGrad && (!terms.none() || in.partners != nullptr)) {
      const Labels labels =
          in.partners == nullptr ? Labels{target, target} : Labels{target, in.partners[r], in.shares[r]};
      sums.nll += turn_row(row, n, labels, mass, scale, terms);
      continue;
    }
    sums.nll += std::log(mass.sum) - margin;
    if (!kGrad) continue;
    exp_row(row, n, mass.largest, static_cast<float>(scale / mass.sum));
    // Near a sure prediction the difference p - 1 would cancel in fp32.
    store_scalar(static_cast<float>((std::exp(margin) / mass.sum - 1) * scale), row + target);
  }
  return sums;
}

template <bool kGrad>
cpu::LossSums sum_task(const cpu::LogitRows& in, int64_t begin, int64_t end, float scale,
                       const LossTerms& terms) {
  cpu::LossSums sums;
  cpu::with_storage(in.dtype,
                    [&]<typename S>(S) { sums = sum_rows<S, kGrad>(in, begin, end, scale, terms); });
  return sums;
}

cpu::LossSums loss_of_rows(const cpu::LogitRows& in, int64_t begin, int64_t end) {
  return sum_task<false>(in, begin, end, 0, {});
}
cpu::LossSums loss_and_grad_of_rows(const cpu::LogitRows& in, int64_t begin, int64_t end, float scale,
                                    const LossTerms& terms) {
  return sum_task<true>(in, begin, end, scale, terms);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tandem
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem {
HWY_EXPORT(loss_of_rows);
HWY_EXPORT(loss_and_grad_of_rows);

namespace cpu {
namespace {

constexpr int64_t kTaskElems = 32768;

int64_t rows_per_task(int64_t vocab) { return std::max<int64_t>(1, kTaskElems / vocab); }

// Sums the tasks' shares in order, so that the total depends on the shape only.
template <typename Fn>
LossSums sum_over_tasks(const LogitRows& in, LossSums* partials, ThreadPool& pool, const Fn& fn) {
  const int64_t step = rows_per_task(in.vocab), num_tasks = num_loss_partials(in.rows, in.vocab);
  pool.parallel_for(num_tasks, [&](int64_t task, int) {
    partials[task] = fn(task * step, std::min(in.rows, (task + 1) * step));
  });
  LossSums total;
  for (int64_t task = 0; task < num_tasks; ++task) {
    total.nll += partials[task].nll;
    total.correct += partials[task].correct;
  }
  return total;
}

}  // namespace

void check_targets(const int32_t* targets, int64_t rows, int64_t vocab) {
  for (int64_t row = 0; row < rows; ++row) {
    TANDEM_CHECK(targets[row] >= -1 && targets[row] < vocab, "target {} of {} classes", targets[row], vocab);
  }
}

int64_t num_loss_partials(int64_t rows, int64_t vocab) {
  const int64_t step = rows_per_task(vocab);
  return (rows + step - 1) / step;
}

LossSums cross_entropy_rows(const LogitRows& in, LossSums* partials, ThreadPool& pool) {
  return sum_over_tasks(in, partials, pool, [&](int64_t begin, int64_t end) {
    return HWY_DYNAMIC_DISPATCH(loss_of_rows)(in, begin, end);
  });
}

LossSums cross_entropy_rows_grad(const LogitRows& in, float scale, const LossTerms& terms, LossSums* partials,
                                 ThreadPool& pool) {
  return sum_over_tasks(in, partials, pool, [&](int64_t begin, int64_t end) {
    return HWY_DYNAMIC_DISPATCH(loss_and_grad_of_rows)(in, begin, end, scale, terms);
  });
}

}  // namespace cpu
}  // namespace tandem
#endif
