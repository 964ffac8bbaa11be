#include <gtest/gtest.h>

#include <cmath>

#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"
#include "tandem/runtime/loss_scaler_step.h"

namespace tandem::cpu {
namespace {

using Scaler = std::vector<double>;                         // scale, good steps
const Scaler kFinite = {3, 1}, kNotFinite = {HUGE_VAL, 0};  // norms

Scaler next(const Scaler& scaler, const std::vector<double>& norm, int64_t window = 3) {
  KernelRun run(Op::NextLossScale, {{"window", window}});
  return run.in({2}, scaler).in({2}, norm).in_place_out().run_reference().result(0);
}

TEST(RefScaleLoss, MultipliesByTheScale) {
  KernelRun run(Op::ScaleLoss);
  run.in(DType::F32, {1}, {0.75}).in({2}, {1024, 7}).out(DType::F32, {1}).run_reference();
  EXPECT_EQ(run.result(0), Scaler{768});
}

TEST(RefUnscaleHyper, ChangesNothingButTheInverseScale) {
  KernelRun run(Op::UnscaleHyper);
  run.in(DType::F32, {6}, {1, 2, 3, 1, 8, 6}).in({2}, {1024, 7}).out(DType::F32, {6}).run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{1, 2, 3, 1.0 / 1024, 8, 6}));
}

TEST(RefNextLossScale, BacksOffOnOverflowAndGrowsAfterAWindowOfGoodSteps) {
  EXPECT_EQ(next({1024, 0}, kNotFinite), (Scaler{512, 0}));
  EXPECT_EQ(next({512, 0}, kFinite), (Scaler{512, 1}));
  EXPECT_EQ(next({512, 1}, kFinite), (Scaler{512, 2}));
  EXPECT_EQ(next({512, 2}, kFinite), (Scaler{1024, 0}));
}

TEST(RefNextLossScale, AnOverflowStartsTheWindowAnew) {
  EXPECT_EQ(next({1024, 2}, kNotFinite), (Scaler{512, 0}));
}

TEST(RefNextLossScale, StaysBetweenItsLimits) {
  EXPECT_EQ(next({1, 2}, kNotFinite), (Scaler{kMinLossScale, 0}));
  EXPECT_EQ(next({1.5, 2}, kNotFinite), (Scaler{kMinLossScale, 0}));
  EXPECT_EQ(next({kMaxLossScale, 2}, kFinite), (Scaler{kMaxLossScale, 0}));
  EXPECT_EQ(next({1e7, 2}, kFinite), (Scaler{kMaxLossScale, 0}));
}

// A window may have been longer when the checkpoint was made.
TEST(RefNextLossScale, GrowsWhereTheWindowIsLongPast) {
  EXPECT_EQ(next({8, 1999}, kFinite, 10), (Scaler{16, 0}));
}

}  // namespace
}  // namespace tandem::cpu
