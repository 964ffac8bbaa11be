// Normalisations, against numbers worked out by hand (eps = 0 keeps them short).
#include <gtest/gtest.h>

#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"

namespace tandem::cpu {
namespace {

const double kRstd = 1.2247448713915890;  // of {1, 2, 3}: the variance is 2/3
// The gradient {1, 0, 0} through the normalisation of {1, 2, 3}: rstd * {1/6, -1/3, 1/6}.
const std::vector<double> kDx = {kRstd / 6, -kRstd / 3, kRstd / 6};

TEST(RefLayerNorm, NormalisesScalesAndShifts) {
  KernelRun run(Op::LayerNorm, {{"eps", 0.0}});
  run.in({2, 2}, {1, 3, 10, 2})
      .in({2}, {2, 3})
      .in({2}, {10, 20})
      .out({2, 2})
      .out({2})
      .out({2})
      .run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{8, 23, 12, 17}));
  EXPECT_EQ(run.result(1), (std::vector<double>{2, 6}));
  EXPECT_EQ(run.result(2), (std::vector<double>{1, 0.25}));
}

TEST(RefLayerNorm, AddsEpsToTheVariance) {
  KernelRun run(Op::LayerNorm, {{"eps", 3.0}});
  run.in({1, 2}, {1, 3}).in({2}, {1, 1}).in({2}, {0, 0}).out({1, 2}).out({1}).out({1}).run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{-0.5, 0.5}));
}

TEST(RefAddLayerNorm, NormalisesTheRoundedSum) {
  KernelRun run(Op::AddLayerNorm, {{"eps", 0.0}});
  // In bf16 256 + 1 rounds to 256, so the row is constant but for the last element.
  run.in(DType::BF16, {1, 2}, {256, 1}).in(DType::BF16, {1, 2}, {1, 1}).in(DType::BF16, {2}, {1, 1});
  run.in(DType::BF16, {2}, {0, 0}).out(DType::BF16, {1, 2}).out(DType::BF16, {1, 2});
  run.out(DType::F32, {1}).out(DType::F32, {1}).run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{256, 2}));
  EXPECT_EQ(run.result(1), (std::vector<double>{1, -1}));
  EXPECT_EQ(run.result(2), (std::vector<double>{129}));
}

TEST(RefLayerNormGrad, MatchesTheFormulaByHand) {
  KernelRun run(Op::LayerNormGrad);
  run.in({1, 3}, {1, 0, 0}).in({1, 3}, {1, 2, 3}).in({3}, {1, 1, 1}).in({1}, {2}).in({1}, {kRstd});
  run.in({3}, {10, 20, 30}).in({3}, {40, 50, 60}).out({1, 3}).in_place_out().in_place_out().run_reference();
  expect_near(run.result(0), kDx, 1e-12);
  expect_near(run.result(1), {10 - kRstd, 20, 30}, 1e-12);
  EXPECT_EQ(run.result(2), (std::vector<double>{41, 50, 60}));
}

TEST(RefLayerNormGrad, AddsTheResidualGradient) {
  KernelRun run(Op::LayerNormGrad);
  run.in({1, 3}, {1, 0, 0}).in({1, 3}, {1, 2, 3}).in({3}, {1, 1, 1}).in({1}, {2}).in({1}, {kRstd});
  run.in({3}, {0, 0, 0})
      .in({3}, {0, 0, 0})
      .in({1, 3}, {100, 200, 300})
      .out({1, 3})
      .in_place_out()
      .in_place_out();
  expect_near(run.run_reference().result(0), {100 + kDx[0], 200 + kDx[1], 300 + kDx[2]}, 1e-12);
}

TEST(RefRmsNorm, DividesByTheRootMeanSquare) {
  KernelRun run(Op::RmsNorm, {{"eps", 0.0}});
  run.in({1, 2}, {3, 4}).in({2}, {1, 10}).out({1, 2}).out({1}).run_reference();
  expect_near(run.result(0), {0.8485281374, 11.3137084990}, 1e-9);
  expect_near(run.result(1), {0.2828427125}, 1e-9);
}

TEST(RefAddRmsNorm, NormalisesTheSum) {
  KernelRun run(Op::AddRmsNorm, {{"eps", 0.0}});
  run.in({1, 2}, {1, 5})
      .in({1, 2}, {2, -1})
      .in({2}, {1, 10})
      .out({1, 2})
      .out({1, 2})
      .out({1})
      .run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{3, 4}));
  expect_near(run.result(1), {0.8485281374, 11.3137084990}, 1e-9);
  expect_near(run.result(2), {0.2828427125}, 1e-9);
}

TEST(RefRmsNormGrad, MatchesTheFormulaByHand) {
  KernelRun run(Op::RmsNormGrad);
  run.in({1, 2}, {1, 0}).in({1, 2}, {3, 4}).in({2}, {1, 1}).in({1}, {0.28284271247461901}).in({2}, {7, 8});
  run.in({1, 2}, {10, 20}).out({1, 2}).in_place_out().run_reference();
  expect_near(run.result(0), {10 + 0.1810193360, 20 - 0.1357645020}, 1e-9);
  expect_near(run.result(1), {7.8485281374, 8}, 1e-9);
}

TEST(RefBatchNorm, KeepsUnbiasedRunningVariance) {
  KernelRun run(Op::BatchNorm, {{"eps", 0.0}, {"momentum", 0.1}});
  run.in({2, 1, 1, 2}, {1, 0, 3, 4}).in({2}, {1, 2}).in({2}, {0, 1}).in({2}, {0, 10}).in({2}, {1, 1});
  run.out({2, 1, 1, 2}).out({2}).out({2}).in_place_out().in_place_out().run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{-1, -1, 1, 3}));
  EXPECT_EQ(run.result(1), (std::vector<double>{2, 2}));
  EXPECT_EQ(run.result(2), (std::vector<double>{1, 0.5}));
  expect_near(run.result(3), {0.2, 9.2}, 1e-12);
  expect_near(run.result(4), {1.1, 1.7}, 1e-12);
}

TEST(RefBatchNormInfer, UsesTheRunningStatistics) {
  KernelRun run(Op::BatchNormInfer, {{"eps", 1.0}});
  run.in({2, 1}, {3, 5}).in({1}, {2}).in({1}, {5}).in({1}, {1}).in({1}, {3}).out({2, 1}).run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{7, 9}));
}

TEST(RefBatchNormGrad, MatchesTheFormulaByHand) {
  KernelRun run(Op::BatchNormGrad);
  run.in({3, 1}, {1, 0, 0}).in({3, 1}, {1, 2, 3}).in({1}, {2}).in({1}, {2}).in({1}, {kRstd});
  run.in({1}, {10}).in({1}, {20}).out({3, 1}).in_place_out().in_place_out().run_reference();
  expect_near(run.result(0), {2 * kDx[0], 2 * kDx[1], 2 * kDx[2]}, 1e-12);
  expect_near(run.result(1), {10 - kRstd}, 1e-12);
  EXPECT_EQ(run.result(2), (std::vector<double>{21}));
}

TEST(RefGroupNorm, NormalisesGroupsOfEachImage) {
  KernelRun run(Op::GroupNorm, {{"eps", 0.0}, {"groups", 2}});
  run.in({2, 1, 1, 4}, {1, 3, 0, 4, 5, 7, -1, 1}).in({4}, {1, 2, 3, 4}).in({4}, {0, 0, 0, 100});
  run.out({2, 1, 1, 4}).out({4}).out({4}).run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{-1, 2, -3, 104, -1, 2, -3, 104}));
  EXPECT_EQ(run.result(1), (std::vector<double>{2, 2, 6, 0}));
  EXPECT_EQ(run.result(2), (std::vector<double>{1, 0.5, 1, 1}));
}

TEST(RefGroupNorm, JoinsThePixelsOfAGroup) {
  KernelRun run(Op::GroupNorm, {{"eps", 0.0}, {"groups", 2}});
  run.in({1, 2, 1, 2}, {1, 0, 3, 4}).in({2}, {1, 1}).in({2}, {0, 0}).out({1, 2, 1, 2}).out({2}).out({2});
  EXPECT_EQ(run.run_reference().result(0), (std::vector<double>{-1, -1, 1, 1}));
}

TEST(RefGroupNormGrad, MatchesTheFormulaByHand) {
  KernelRun run(Op::GroupNormGrad, {{"groups", 1}});
  run.in({1, 1, 1, 3}, {1, 0, 0})
      .in({1, 1, 1, 3}, {1, 2, 3})
      .in({3}, {1, 1, 1})
      .in({1}, {2})
      .in({1}, {kRstd});
  run.in({3}, {10, 20, 30}).in({3}, {40, 50, 60}).out({1, 1, 1, 3}).in_place_out().in_place_out();
  run.run_reference();
  expect_near(run.result(0), kDx, 1e-12);
  expect_near(run.result(1), {10 - kRstd, 20, 30}, 1e-12);
  EXPECT_EQ(run.result(2), (std::vector<double>{41, 50, 60}));
}

}  // namespace
}  // namespace tandem::cpu
