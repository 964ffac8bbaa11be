#include <gtest/gtest.h>

#include <cmath>

#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"
#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {
namespace {

// One rounding of a gradient of size at most 1/2.
double tolerance(DType dtype) { return dtype == DType::F32 ? 5e-7 : dtype == DType::BF16 ? 4e-3 : 5e-4; }

std::vector<double> some_targets(int64_t rows, int64_t vocab) {
  std::vector<double> targets;
  for (int64_t row = 0; row < rows; ++row) {
    targets.push_back(row % 5 == 3 ? -1 : static_cast<double>(row * 37 % vocab));
  }
  return targets;
}

KernelRun cross_entropy_grad(DType dtype, int64_t rows, int64_t vocab) {
  KernelRun run(Op::CrossEntropyGrad);
  run.random_in(dtype, {rows, vocab}, 7, 3).in(DType::I32, {rows}, some_targets(rows, vocab));
  run.in(DType::F32, {1}, {0.5}).in_place_out().out({2});
  return run;
}

constexpr std::pair<int64_t, int64_t> kShapes[] = {{1, 1},    {3, 2},    {7, 10},   {5, 17},
                                                   {300, 64}, {9, 2048}, {4, 4099}, {2, 50257}};

TEST(CrossEntropyGrad, MatchesTheReferenceOverRaggedShapes) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (auto [rows, vocab] : kShapes) {
      SCOPED_TRACE(fmt::format("{} {} x {}", dtype_name(dtype), rows, vocab));
      KernelRun run = cross_entropy_grad(dtype, rows, vocab);
      run.run_reference();
      const auto gradient = run.result(0), stats = run.result(1);
      run.run(all_kernels(), "cpu.cross_entropy_grad");
      expect_near(run.result(0), gradient, tolerance(dtype));
      expect_near(run.result(1), stats, 1e-6);
      EXPECT_EQ(run.result(1)[1], stats[1]);
    }
  }
}

TEST(CrossEntropy, MatchesTheReferenceOverRaggedShapes) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (auto [rows, vocab] : kShapes) {
      SCOPED_TRACE(fmt::format("{} {} x {}", dtype_name(dtype), rows, vocab));
      KernelRun run(Op::CrossEntropy);
      run.random_in(dtype, {rows, vocab}, 7, 3).in(DType::I32, {rows}, some_targets(rows, vocab)).out({2});
      const auto stats = run.run_reference().result(0);
      expect_near(run.run(all_kernels(), "cpu.cross_entropy").result(0), stats, 1e-6);
    }
  }
}

TEST(CrossEntropyGrad, HasTheSameBitsForAnyThreadCount) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    KernelRun run = cross_entropy_grad(dtype, 301, 777);
    run.run(all_kernels(), "cpu.cross_entropy_grad", 1);
    const auto gradient = run.result_bytes(0), stats = run.result_bytes(1);
    for (int threads : {2, 4}) {
      run.run(all_kernels(), "cpu.cross_entropy_grad", threads);
      EXPECT_EQ(run.result_bytes(0), gradient) << threads;
      EXPECT_EQ(run.result_bytes(1), stats) << threads;
    }
  }
}

TEST(CrossEntropy, StandsHugeAndInfinitelySmallLogits) {
  const double lowest = -HUGE_VAL;
  KernelRun run(Op::CrossEntropyGrad);
  run.in(DType::F32, {3, 3}, {3e38, 3e38, -3e38, lowest, 0, lowest, -1e30, -1e30, -2e30});
  run.in(DType::I32, {3}, {0, 1, 1}).in(DType::F32, {1}, {1}).in_place_out().out({2});
  run.run(all_kernels(), "cpu.cross_entropy_grad");
  expect_near(run.result(0), {-0.5, 0.5, 0, 0, 0, 0, 0.5, -0.5, 0}, 1e-6);
  expect_near(run.result(1), {2 * std::log(2.0), 2}, 1e-6);
}

TEST(CrossEntropy, CountsOnlyTheFirstOfEqualMaxima) {
  std::vector<double> logits(70, 0.0);
  logits[40] = logits[60] = 5;
  for (auto [target, correct] : {std::pair{40, 1.0}, {60, 0.0}, {0, 0.0}}) {
    KernelRun run(Op::CrossEntropy);
    run.in(DType::F32, {1, 70}, logits).in(DType::I32, {1}, {static_cast<double>(target)}).out({2});
    EXPECT_EQ(run.run(all_kernels(), "cpu.cross_entropy").result(0)[1], correct) << target;
  }
}

TEST(CrossEntropy, LetsANanThrough) {
  KernelRun run(Op::CrossEntropy);
  run.in(DType::F32, {1, 3}, {1, std::nan(""), 2}).in(DType::I32, {1}, {0}).out({2});
  EXPECT_TRUE(std::isnan(run.run(all_kernels(), "cpu.cross_entropy").result(0)[0]));
}

TEST(CrossEntropy, RefusesATargetOutsideTheClasses) {
  KernelRun run(Op::CrossEntropy);
  run.in(DType::F32, {1, 3}, {1, 1, 2}).in(DType::I32, {1}, {3}).out({2});
  EXPECT_THROW(run.run(all_kernels(), "cpu.cross_entropy"), BugError);
}

TEST(CrossEntropy, LeavesDoublesToTheReference) {
  KernelRun run(Op::CrossEntropy);
  run.in(DType::F64, {1, 3}, {1, 1, 2}).in(DType::I32, {1}, {0}).out({2});
  EXPECT_FALSE(run.supported_by(all_kernels(), "cpu.cross_entropy"));
}

}  // namespace
}  // namespace tandem::cpu
