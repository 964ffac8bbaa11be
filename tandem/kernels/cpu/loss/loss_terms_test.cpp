// Label smoothing and the z-loss: the reference against differences and closed forms, the fast kernels
// against the reference.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"
#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {
namespace {

using Values = std::vector<double>;

const Attrs kTerms[] = {{{"smoothing", 0.1}}, {{"z", 0.01}}, {{"smoothing", 0.3}, {"z", 0.02}}};

Values some_targets(int64_t rows, int64_t vocab) {
  Values targets;
  for (int64_t row = 0; row < rows; ++row)
    targets.push_back(row % 5 == 3 ? -1 : static_cast<double>(row * 37 % vocab));
  return targets;
}

KernelRun grad_of(const Values& logits, const Values& targets, const Attrs& attrs) {
  const auto rows = static_cast<int64_t>(targets.size());
  const auto vocab = static_cast<int64_t>(logits.size()) / rows;
  KernelRun run(Op::CrossEntropyGrad, attrs);
  run.in({rows, vocab}, logits).in(DType::I32, {rows}, targets).in({1}, {1.0}).in_place_out().out({2});
  run.run_reference();
  return run;
}

TEST(LossTerms, TheGradientIsThatOfTheLoss) {
  const Values targets = {1, -1, 4, 0};
  Values logits;
  for (int i = 0; i < 20; ++i) logits.push_back(std::sin(7.0 * i) * 3);
  for (const Attrs& attrs : kTerms) {
    const Values gradient = grad_of(logits, targets, attrs).result(0);
    for (size_t i = 0; i < logits.size(); ++i) {
      constexpr double kStep = 1e-5;
      Values above = logits, below = logits;
      above[i] += kStep;
      below[i] -= kStep;
      const double slope =
          (grad_of(above, targets, attrs).result(1)[0] - grad_of(below, targets, attrs).result(1)[0]) /
          (2 * kStep);
      EXPECT_NEAR(gradient[i], slope, 1e-8) << i;
    }
  }
}

// With l = (a, 0): Z = log(e^a + 1), and p = e^a / (e^a + 1).
TEST(LossTerms, AreTheirClosedForms) {
  const double a = 0.7, z = std::log(std::exp(a) + 1), p = std::exp(a) / (std::exp(a) + 1);
  const KernelRun smooth = grad_of({a, 0}, {0}, {{"smoothing", 0.2}});
  EXPECT_NEAR(smooth.result(1)[0], 0.9 * (z - a) + 0.1 * z, 1e-12);  // 0.8 + 0.2 / 2 of the target
  expect_near(smooth.result(0), {p - 0.9, 1 - p - 0.1}, 1e-12);
  const KernelRun squared = grad_of({a, 0}, {0}, {{"z", 0.5}});
  EXPECT_NEAR(squared.result(1)[0], z - a + 0.5 * z * z, 1e-12);
  expect_near(squared.result(0), {p - 1 + z * p, (1 - p) + z * (1 - p)}, 1e-12);
}

TEST(LossTerms, FastKernelsMatchTheReferenceOverRaggedShapes) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (const auto& [rows, vocab] : {std::pair<int64_t, int64_t>{1, 1}, {7, 10}, {300, 64}, {4, 4099}}) {
      for (const Attrs& attrs : kTerms) {
        SCOPED_TRACE(fmt::format("{} {} x {}", dtype_name(dtype), rows, vocab));
        KernelRun run(Op::CrossEntropyGrad, attrs);
        run.random_in(dtype, {rows, vocab}, 7, 3).in(DType::I32, {rows}, some_targets(rows, vocab));
        run.in(DType::F32, {1}, {0.5}).in_place_out().out({2});
        run.run_reference();
        const Values gradient = run.result(0), stats = run.result(1);
        run.run(all_kernels(), "cpu.cross_entropy_grad", 2);
        expect_near(run.result(0), gradient, dtype == DType::F32 ? 1e-6 : dtype == DType::BF16 ? 4e-3 : 5e-4);
        expect_near(run.result(1), stats, 1e-6);
      }
    }
  }
}

// Of two labels the loss is the mean of both, and so is the gradient.
TEST(LossOfMixedRows, IsTheMeanOfItsLabels) {
  const double share = 0.7;
  for (const Attrs& attrs : kTerms) {
    const Values logits = {0.3, -1.2, 2.0, 0.9};
    const KernelRun own = grad_of(logits, {2}, attrs), other = grad_of(logits, {1}, attrs);
    KernelRun run(Op::CrossEntropyGrad, attrs);
    run.in({1, 4}, logits).in(DType::I32, {1}, {2}).in({1}, {1.0}).in(DType::I32, {1}, {1});
    run.in(DType::F32, {1}, {share}).in_place_out().out({2});
    run.run_reference();
    constexpr double kNear = 1e-7;  // the share is fp32
    EXPECT_NEAR(run.result(1)[0], share * own.result(1)[0] + (1 - share) * other.result(1)[0], kNear);
    EXPECT_EQ(run.result(1)[1], 1);
    for (size_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(run.result(0)[i], share * own.result(0)[i] + (1 - share) * other.result(0)[i], kNear);
  }
}

TEST(LossOfMixedRows, FastKernelsMatchTheReference) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (const auto& [rows, vocab] : {std::pair<int64_t, int64_t>{1, 2}, {7, 10}, {300, 64}, {4, 4099}}) {
      for (const Attrs& attrs : {Attrs{}, kTerms[2]}) {
        SCOPED_TRACE(fmt::format("{} {} x {}", dtype_name(dtype), rows, vocab));
        const Values targets = some_targets(rows, vocab);
        Values partners, shares;
        for (int64_t row = 0; row < rows; ++row) {
          const double own = targets[static_cast<size_t>(row)];
          partners.push_back(own < 0 || row % 3 == 0 ? own : static_cast<double>(row * 11 % vocab));
          shares.push_back(0.5 + 0.5 * static_cast<double>(row % 7) / 7);
        }
        KernelRun run(Op::CrossEntropyGrad, attrs);
        run.random_in(dtype, {rows, vocab}, 7, 3).in(DType::I32, {rows}, targets).in(DType::F32, {1}, {0.5});
        run.in(DType::I32, {rows}, partners).in(DType::F32, {rows}, shares).in_place_out().out({2});
        run.run_reference();
        const Values gradient = run.result(0), stats = run.result(1);
        run.run(all_kernels(), "cpu.cross_entropy_grad", 2);
        expect_near(run.result(0), gradient, dtype == DType::F32 ? 1e-6 : dtype == DType::BF16 ? 4e-3 : 5e-4);
        expect_near(run.result(1), stats, 1e-6);
      }
    }
  }
}

TEST(LossTerms, OfTheLinearFormMatchTheReference) {
  for (const Attrs& terms : kTerms) {
    Attrs attrs = terms;
    attrs.set("chunk", int64_t{5});
    KernelRun run(Op::LinearCrossEntropyGrad, attrs);
    run.random_in(DType::F32, {13, 24}, 1).random_in(DType::F32, {37, 24}, 2);
    run.in(DType::I32, {13}, some_targets(13, 37)).in(DType::F32, {1}, {0.5});
    run.in(DType::F32, {37, 24}, Values(37 * 24, 0.0)).out(DType::F32, {13, 24}).out({2}).in_place_out();
    run.run_reference();
    const Values dx = run.result(0), stats = run.result(1), dw = run.result(2);
    run.run(all_kernels(), "cpu.linear_cross_entropy_grad", 2);
    expect_near(run.result(0), dx, 1e-5);
    expect_near(run.result(1), stats, 1e-5);
    expect_near(run.result(2), dw, 1e-5);
  }
}

}  // namespace
}  // namespace tandem::cpu
