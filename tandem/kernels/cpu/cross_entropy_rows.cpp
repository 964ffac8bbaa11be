// A row is read once for its maximum and its sum of exponentials: a block small enough for the L1 cache is
// read for its maximum, then again for the sum under the largest maximum so far, and a larger maximum
// rescales what was summed before. A second pass turns logits into their gradient where they stand.
#include "tandem/kernels/cpu/cross_entropy_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tandem/base/error.h"
#include "tandem/kernels/cpu/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tandem/kernels/cpu/cross_entropy_rows.cpp"
#include "hwy/foreach_target.h"
#include "tandem/kernels/cpu/exp-inl.h"
#include "tandem/kernels/cpu/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kBlock = 2048;

HWY_INLINE FloatVec or_lowest(FloatTag, FloatVec v, Whole) { return v; }
HWY_INLINE FloatVec or_lowest(FloatTag d, FloatVec v, Part part) {
  return hn::IfThenElse(hn::FirstN(d, part.count), v, hn::Set(d, -std::numeric_limits<float>::infinity()));
}

template <typename S>
float block_max(const S* src, size_t n) {
  const FloatTag d;
  auto largest = hn::Set(d, -std::numeric_limits<float>::infinity());
  for_each_vector(n, [&](size_t i, auto part) {
    largest = hn::Max(largest, or_lowest(d, load_float(d, src + i, part), part));
  });
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

struct RowMass {
  float largest;
  double sum;  // of exp(logit - largest)
};

template <typename S>
RowMass row_mass(const S* row, size_t vocab) {
  const FloatTag d;
  RowMass mass{-std::numeric_limits<float>::infinity(), 0};
  for (size_t begin = 0; begin < vocab; begin += kBlock) {
    const S* block = row + begin;
    const size_t n = std::min(kBlock, vocab - begin);
    const float largest = std::max(mass.largest, block_max(block, n));
    if (largest > mass.largest) {
      mass.sum *= std::exp(static_cast<double>(mass.largest) - largest);
      mass.largest = largest;
    }
    // While all logits are -inf there is nothing to sum, but a NaN among them must still reach the sum.
    const auto shift = hn::Set(d, std::isinf(largest) && largest < 0 ? 0.0f : largest);
    mass.sum += sum_of_vectors(
        n, [&](size_t i, auto part) { return fast_exp(d, hn::Sub(load_float(d, block + i, part), shift)); });
  }
  return mass;
}

// Whether the first of the row's maxima is the target.
template <typename S>
bool predicts(const S* row, int32_t target, float largest) {
  if (scalar_float(row[target]) != largest) return false;
  const float before = block_max(row, static_cast<size_t>(target));
  return before < largest || target == 0;
}

template <typename S, bool kGrad>
cpu::LossSums sum_rows(S* logits, const int32_t* targets, int64_t rows, int64_t vocab, float scale) {
  const FloatTag d;
  const auto n = static_cast<size_t>(vocab);
  cpu::LossSums sums;
  for (int64_t r = 0; r < rows; ++r) {
    S* row = logits + r * vocab;
    const int32_t target = targets[r];
    if (target < 0) {
      if (kGrad) std::memset(row, 0, n * sizeof(S));
      continue;
    }
    const RowMass mass = row_mass(row, n);
    const double margin = static_cast<double>(scalar_float(row[target])) - mass.largest;
    sums.nll += std::log(mass.sum) - margin;
    sums.correct += predicts(row, target, mass.largest) ? 1 : 0;
    if (!kGrad) continue;
    const auto shift = hn::Set(d, mass.largest);
    const auto factor = hn::Set(d, static_cast<float>(scale / mass.sum));
    for_each_vector(n, [&](size_t i, auto part) {
      const auto mass_at = fast_exp(d, hn::Sub(load_float(d, row + i, part), shift));
      store_float(d, hn::Mul(mass_at, factor), row + i, part);
    });
    // Near a sure prediction the difference p - 1 would cancel in fp32.
    store_scalar(static_cast<float>((std::exp(margin) / mass.sum - 1) * scale), row + target);
  }
  return sums;
}

template <bool kGrad>
cpu::LossSums sum_task(const cpu::LogitRows& in, int64_t begin, int64_t end, float scale) {
  cpu::LossSums sums;
  cpu::with_storage(in.dtype, [&]<typename S>(S) {
    sums = sum_rows<S, kGrad>(static_cast<S*>(in.logits) + begin * in.vocab, in.targets + begin, end - begin,
                              in.vocab, scale);
  });
  return sums;
}

cpu::LossSums loss_of_rows(const cpu::LogitRows& in, int64_t begin, int64_t end) {
  return sum_task<false>(in, begin, end, 0);
}
cpu::LossSums loss_and_grad_of_rows(const cpu::LogitRows& in, int64_t begin, int64_t end, float scale) {
  return sum_task<true>(in, begin, end, scale);
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

LossSums cross_entropy_rows_grad(const LogitRows& in, float scale, LossSums* partials, ThreadPool& pool) {
  return sum_over_tasks(in, partials, pool, [&](int64_t begin, int64_t end) {
    return HWY_DYNAMIC_DISPATCH(loss_and_grad_of_rows)(in, begin, end, scale);
  });
}

}  // namespace cpu
}  // namespace tandem
#endif
