// Ranks with equally many rows, one after the other, against BatchNorm over all their rows at once.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/base/rng.h"
#include "tandem/kernels/cpu/conv/image_kernels_test.h"

namespace tandem::cpu {
namespace {

using Values = std::vector<double>;

const std::vector<Shape> kShapes = {{12, 3, 5, 1},  {12, 2, 2, 3},    {12, 1, 1, 5},   {24, 7, 5, 16},
                                    {12, 8, 8, 33}, {12, 40, 30, 16}, {300, 1, 1, 100}};

Values random_values(int64_t elems, uint64_t seed, double deviation = 1, double mean = 0) {
  Values values;
  const Rng rng(seed, 0);
  for (int64_t i = 0; i < elems; ++i)
    values.push_back(mean + deviation * (2 * rng.uniform(static_cast<uint64_t>(i)) - 1));
  return values;
}

// What the norm works on: the rows of all ranks.
struct Batch {
  DType dtype;
  Shape shape;
  Values x, dy, gamma, beta, running_mean, running_var;

  Batch(DType dtype, Shape shape, double mean = 0.5)
      : dtype(dtype),
        shape(shape),
        x(random_values(shape.elems(), 1, 2, mean)),
        dy(random_values(shape.elems(), 2)),
        gamma(random_values(shape.last(), 3, 0.5, 1)),
        beta(random_values(shape.last(), 4)),
        running_mean(random_values(shape.last(), 5)),
        running_var(random_values(shape.last(), 6, 0.5, 1)) {
    // Every rank's rows are shifted by their own amount, as far apart as their own spread.
    for (size_t i = 0; i < x.size(); ++i) x[i] += static_cast<double>(12 * i / x.size()) / 4;
  }
  Shape channels() const { return {shape.last()}; }
  Shape local(int64_t size) const { return {shape[0] / size, shape[1], shape[2], shape[3]}; }
  static Values part(const Values& all, int64_t size, int64_t rank) {
    const auto elems = static_cast<int64_t>(all.size()) / size;
    return {all.begin() + rank * elems, all.begin() + (rank + 1) * elems};
  }
};

enum class Kernels { Reference, Fast };

KernelRun& run_with(KernelRun& run, Kernels kernels, Op op) {
  static const KernelRegistry registry = all_kernels();
  return kernels == Kernels::Reference ? run.run_reference()
                                       : run.run(registry, "cpu." + std::string(op_name(op)));
}

KernelRun stats_run(const Batch& b, int64_t size, int64_t rank) {
  KernelRun run(Op::BatchNormStats);
  run.in(b.dtype, b.local(size), Batch::part(b.x, size, rank)).out(DType::F32, {2, b.shape.last()});
  return run;
}

Values all_parts(const Batch& b, int64_t size, Kernels kernels) {
  Values parts;
  for (int64_t rank = 0; rank < size; ++rank) {
    KernelRun run = stats_run(b, size, rank);
    const Values part = run_with(run, kernels, Op::BatchNormStats).result(0);
    parts.insert(parts.end(), part.begin(), part.end());
  }
  return parts;
}

KernelRun apply_run(const Batch& b, int64_t size, int64_t rank, const Values& parts) {
  KernelRun run(Op::BatchNormApply, {{"eps", 1e-5}, {"momentum", 0.1}, {"size", size}});
  run.in(b.dtype, b.local(size), Batch::part(b.x, size, rank)).in(b.dtype, b.channels(), b.gamma);
  run.in(b.dtype, b.channels(), b.beta).in(DType::F32, b.channels(), b.running_mean);
  run.in(DType::F32, b.channels(), b.running_var).in(DType::F32, {2 * size, b.shape.last()}, parts);
  run.out(b.dtype, b.local(size)).out(DType::F32, b.channels()).out(DType::F32, b.channels());
  run.in_place_out().in_place_out();
  return run;
}

KernelRun whole_run(const Batch& b) {
  KernelRun run(Op::BatchNorm, {{"eps", 1e-5}, {"momentum", 0.1}});
  run.in(b.dtype, b.shape, b.x).in(b.dtype, b.channels(), b.gamma).in(b.dtype, b.channels(), b.beta);
  run.in(DType::F32, b.channels(), b.running_mean).in(DType::F32, b.channels(), b.running_var);
  run.out(b.dtype, b.shape).out(DType::F32, b.channels()).out(DType::F32, b.channels());
  run.in_place_out().in_place_out();
  return run;
}

KernelRun grad_stats_run(const Batch& b, int64_t size, int64_t rank, const Values& mean, const Values& rstd) {
  KernelRun run(Op::BatchNormGradStats);
  run.in(b.dtype, b.local(size), Batch::part(b.dy, size, rank));
  run.in(b.dtype, b.local(size), Batch::part(b.x, size, rank));
  run.in(DType::F32, b.channels(), mean).in(DType::F32, b.channels(), rstd);
  run.in(DType::F32, b.channels(), b.beta)
      .in(DType::F32, b.channels(), b.running_mean);  // something to add to
  run.out(DType::F32, {2, b.shape.last()}).in_place_out().in_place_out();
  return run;
}

KernelRun grad_apply_run(const Batch& b, int64_t size, int64_t rank, const Values& mean, const Values& rstd,
                         const Values& sums) {
  KernelRun run(Op::BatchNormGradApply, {{"size", size}});
  run.in(b.dtype, b.local(size), Batch::part(b.dy, size, rank));
  run.in(b.dtype, b.local(size), Batch::part(b.x, size, rank)).in(b.dtype, b.channels(), b.gamma);
  run.in(DType::F32, b.channels(), mean).in(DType::F32, b.channels(), rstd);
  run.in(DType::F32, {2, b.shape.last()}, sums).out(b.dtype, b.local(size));
  return run;
}

KernelRun whole_grad_run(const Batch& b, const Values& mean, const Values& rstd) {
  const Values zeros(static_cast<size_t>(b.shape.last()), 0.0);
  KernelRun run(Op::BatchNormGrad);
  run.in(b.dtype, b.shape, b.dy).in(b.dtype, b.shape, b.x).in(b.dtype, b.channels(), b.gamma);
  run.in(DType::F32, b.channels(), mean).in(DType::F32, b.channels(), rstd);
  run.in(DType::F32, b.channels(), zeros).in(DType::F32, b.channels(), zeros);
  run.out(b.dtype, b.shape).in_place_out().in_place_out();
  return run;
}

class SyncBatchNorm : public testing::TestWithParam<DType> {
 protected:
  // fp32 results differ by their last place or two, 16-bit ones where two nearly equal values round apart.
  double tolerance() const { return GetParam() == DType::F32 ? 1e-6 : storage_tolerance(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Storage, SyncBatchNorm, testing::Values(DType::F32, DType::BF16, DType::F16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_P(SyncBatchNorm, MatchesReferenceForAnyNumberOfThreads) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(to_string(shape));
    const Batch b(GetParam(), shape);
    const Values parts = all_parts(b, 3, Kernels::Reference);
    expect_matches_reference(stats_run(b, 3, 1), "cpu.batch_norm_stats", 2e-5);
    KernelRun apply = apply_run(b, 3, 1, parts);
    expect_matches_reference(apply, "cpu.batch_norm_apply", storage_tolerance(GetParam()));
    const Values mean = apply.run_reference().result(1), rstd = apply.result(2);
    KernelRun stats = grad_stats_run(b, 3, 1, mean, rstd);
    expect_matches_reference(stats, "cpu.batch_norm_grad_stats", 2e-5);
    const Values sums = stats.run_reference().result(0);
    expect_matches_reference(grad_apply_run(b, 3, 1, mean, rstd, sums), "cpu.batch_norm_grad_apply",
                             storage_tolerance(GetParam()));
  }
}

TEST_P(SyncBatchNorm, IsBatchNormOfAllRows) {
  for (Kernels kernels : {Kernels::Reference, Kernels::Fast}) {
    for (const Shape& shape : kShapes) {
      const Batch b(GetParam(), shape);
      KernelRun whole = whole_run(b);
      run_with(whole, kernels, Op::BatchNorm);
      for (int64_t size : {1, 2, 3, 4}) {
        const Values parts = all_parts(b, size, kernels);
        for (int64_t rank = 0; rank < size; ++rank) {
          SCOPED_TRACE(fmt::format("{} rank {} of {}", to_string(shape), rank, size));
          KernelRun run = apply_run(b, size, rank, parts);
          run_with(run, kernels, Op::BatchNormApply);
          expect_near(run.result(0), Batch::part(whole.result(0), size, rank), tolerance());
          for (int i = 1; i < 5; ++i) expect_near(run.result(i), whole.result(i), 1e-6);
        }
      }
    }
  }
}

TEST_P(SyncBatchNorm, HasTheGradientOfBatchNormOfAllRows) {
  for (Kernels kernels : {Kernels::Reference, Kernels::Fast}) {
    for (const Shape& shape : kShapes) {
      const Batch b(GetParam(), shape);
      const auto channels = static_cast<size_t>(shape.last());
      KernelRun forward = whole_run(b);
      const Values mean = forward.run_reference().result(1), rstd = forward.result(2);
      KernelRun whole = whole_grad_run(b, mean, rstd);
      run_with(whole, kernels, Op::BatchNormGrad);
      for (int64_t size : {1, 2, 3, 4}) {
        Values sums(2 * channels), dgamma(channels), dbeta(channels);
        for (int64_t rank = 0; rank < size; ++rank) {
          KernelRun run = grad_stats_run(b, size, rank, mean, rstd);
          run_with(run, kernels, Op::BatchNormGradStats);
          for (size_t i = 0; i < sums.size(); ++i) sums[i] += run.result(0)[i];
          for (size_t c = 0; c < channels; ++c) {
            dgamma[c] += run.result(1)[c] - static_cast<float>(b.beta[c]);
            dbeta[c] += run.result(2)[c] - static_cast<float>(b.running_mean[c]);
          }
        }
        SCOPED_TRACE(fmt::format("{} size {}", to_string(shape), size));
        expect_near(dgamma, whole.result(1), 1e-5);  // they went through an accumulator
        expect_near(dbeta, whole.result(2), 1e-5);
        for (int64_t rank = 0; rank < size; ++rank) {
          KernelRun run = grad_apply_run(b, size, rank, mean, rstd, sums);
          run_with(run, kernels, Op::BatchNormGradApply);
          expect_near(run.result(0), Batch::part(whole.result(0), size, rank), tolerance());
        }
      }
    }
  }
}

// A rank's mean is known to 2^-12 only, and enters with the distance between the means.
TEST(SyncBatchNorm, KeepsTheVarianceOfValuesFarFromZero) {
  const Batch b(DType::F32, {64, 8, 8, 20}, 4096);
  KernelRun whole = whole_run(b);
  whole.run_reference();
  for (int64_t size : {2, 4}) {
    KernelRun run = apply_run(b, size, 0, all_parts(b, size, Kernels::Fast));
    run.run(all_kernels(), "cpu.batch_norm_apply", 2);
    expect_near(run.result(2), whole.result(2), 1e-4);
  }
}

TEST(SyncBatchNorm, CountsTheRowsOfAllRanksInTheRunningVariance) {
  for (const char* kernel : {"cpu.batch_norm_apply", "ref.batch_norm_apply"}) {
    KernelRun run(Op::BatchNormApply, {{"eps", 0.0}, {"momentum", 0.5}, {"size", 2}});
    // Rank 0 has 1 and 3, rank 1 has 5 and 7: the mean is 4, the squared distances 9 + 1 + 1 + 9.
    run.in(DType::F32, {2, 1}, {1, 3}).in(DType::F32, {1}, {1}).in(DType::F32, {1}, {0});
    run.in(DType::F32, {1}, {0}).in(DType::F32, {1}, {0}).in(DType::F32, {4, 1}, {2, 2, 6, 2});
    run.out(DType::F32, {2, 1}).out(DType::F32, {1}).out(DType::F32, {1}).in_place_out().in_place_out();
    run.run(all_kernels(), kernel);
    EXPECT_EQ(run.result(1), Values{4});
    expect_near(run.result(2), {1 / std::sqrt(5.0)}, 1e-7);
    EXPECT_EQ(run.result(3), Values{2});
    expect_near(run.result(4), {20.0 / 3 / 2}, 1e-7);
    expect_near(run.result(0), {-3 / std::sqrt(5.0), -1 / std::sqrt(5.0)}, 1e-7);
  }
}

}  // namespace
}  // namespace tandem::cpu
