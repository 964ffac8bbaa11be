// Matrix products and convolutions, against numbers worked out by hand.
#include <gtest/gtest.h>

#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"

namespace tandem::cpu {
namespace {

const std::vector<double> kOneToFour = {1, 2, 3, 4}, kFiveToEight = {5, 6, 7, 8};
const std::vector<double> kOneToNine = {1, 2, 3, 4, 5, 6, 7, 8, 9};

TEST(RefMatmul, AddsTheBias) {
  KernelRun run(Op::Matmul, {{"trans_a", 0}, {"trans_b", 0}});
  run.in({2, 2}, kOneToFour).in({2, 2}, kFiveToEight).in({2}, {1, -1}).out({2, 2}).run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{20, 21, 44, 49}));
}

TEST(RefMatmul, ReadsThroughTransposes) {
  const auto product = [](int64_t trans_a, int64_t trans_b) {
    KernelRun run(Op::Matmul, {{"trans_a", trans_a}, {"trans_b", trans_b}});
    return run.in({2, 2}, kOneToFour).in({2, 2}, kFiveToEight).out({2, 2}).run_reference().result(0);
  };
  EXPECT_EQ(product(0, 1), (std::vector<double>{17, 23, 39, 53}));
  EXPECT_EQ(product(1, 0), (std::vector<double>{26, 30, 38, 44}));
  EXPECT_EQ(product(1, 1), (std::vector<double>{23, 31, 34, 46}));
}

TEST(RefMatmul, TakesEveryStorageTypeAndAnyRankOfRows) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64}) {
    KernelRun run(Op::Matmul, {{"trans_b", 1}});
    run.in(dtype, {2, 1, 3}, {1, 2, 3, 4, 5, 6}).in(dtype, {1, 3}, {1, 0.5, -2}).out(dtype, {2, 1, 1});
    EXPECT_EQ(run.run_reference().result(0), (std::vector<double>{-4, -5.5})) << dtype_name(dtype);
  }
}

TEST(RefMatmulBiasAcc, IsBothGradients) {
  KernelRun run(Op::MatmulBiasAcc, {{"trans_a", 1}, {"trans_b", 0}});
  run.in({2, 2}, {1, 1, 1, 1}).in({2}, {10, 20}).in({2, 2}, kOneToFour).in({2, 2}, kFiveToEight);
  run.in_place_out().in_place_out().run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{27, 31, 39, 45}));
  EXPECT_EQ(run.result(1), (std::vector<double>{14, 26}));
}

TEST(RefMatmulBiasAcc, OverwritesWhatIsFresh) {
  KernelRun run(Op::MatmulBiasAcc, {{"fresh", 1}, {"trans_a", 1}, {"trans_b", 0}});
  run.in({2, 2}, {1, 1, 1, 1}).in({2}, {10, 20}).in({2, 2}, kOneToFour).in({2, 2}, kFiveToEight);
  run.in_place_out().in_place_out().run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{26, 30, 38, 44}));
  EXPECT_EQ(run.result(1), (std::vector<double>{4, 6}));
}

TEST(RefMatmulGeluGrad, IsTheProductTimesTheSlope) {
  KernelRun run(Op::MatmulGeluGrad, {{"trans_a", 0}, {"trans_b", 0}});
  run.in({1, 2}, {1, 2}).in({2, 2}, kOneToFour).in({1, 2}, {0, 100}).out({1, 2}).run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{3.5, 10})) << "slopes of one half and of one";
}

TEST(RefMatmul, RefusesExtentsThatDoNotMeet) {
  KernelRun run(Op::Matmul);
  run.in({1, 2}, {1, 2}).in({3, 1}, {1, 2, 3}).out({1, 1});
  EXPECT_THROW(run.run_reference(), BugError);
}

TEST(RefMatmulGelu, KeepsTheValuesBeforeTheActivation) {
  KernelRun run(Op::MatmulGelu, {{"trans_b", 1}});
  run.in({1, 1}, {2}).in({3, 1}, {0.5, -0.5, 1}).in({3}, {0, 0, 0}).out({1, 3}).out({1, 3}).run_reference();
  EXPECT_EQ(run.result(1), (std::vector<double>{1, -1, 2}));
  expect_near(run.result(0), {0.8411919906, -0.1588080094, 1.9545976941}, 1e-9);
}

TEST(RefMatmulAcc, AddsToWhatIsThere) {
  KernelRun run(Op::MatmulAcc, {{"trans_a", 1}});
  run.in(DType::F32, {2, 2}, {100, 200, 300, 400}).in(DType::BF16, {2, 2}, kOneToFour);
  run.in(DType::BF16, {2, 2}, kFiveToEight).in_place_out().run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{126, 230, 338, 444}));
}

TEST(RefBiasGrad, AddsColumnSums) {
  KernelRun run(Op::BiasGrad);
  run.in({2}, {10, 20}).in({3, 2}, {1, 2, 3, 4, 5, 6}).in_place_out().run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{19, 32}));
}

TEST(RefConv2d, MatchesAHandComputedWindow) {
  KernelRun run(Op::Conv2d, {{"stride", 1}, {"pad", 0}});
  run.in({1, 3, 3, 1}, kOneToNine)
      .in({1, 2, 2, 1}, kOneToFour)
      .in({1}, {10})
      .out({1, 2, 2, 1})
      .run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{47, 57, 77, 87}));
}

TEST(RefConv2d, PadsWithZerosAndStrides) {
  KernelRun run(Op::Conv2d, {{"stride", 2}, {"pad", 1}});
  run.in({1, 3, 3, 1}, kOneToNine).in({1, 2, 2, 1}, kOneToFour).out({1, 2, 2, 1}).run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{4, 18, 36, 77}));
}

TEST(RefConv2d, MixesChannelsOfEveryImage) {  // 1 x 1 window: a matrix product per pixel
  KernelRun run(Op::Conv2d, {{"stride", 1}, {"pad", 0}});
  run.in({2, 1, 1, 2}, kOneToFour).in({3, 1, 1, 2}, {1, 0, 0, 1, 1, 1}).out({2, 1, 1, 3}).run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{1, 2, 3, 3, 4, 7}));
}

TEST(RefConv2dGradInput, SpreadsEachOutputOverItsWindow) {
  KernelRun run(Op::Conv2dGradInput, {{"stride", 1}, {"pad", 0}, {"height", 3}, {"width", 3}});
  run.in({1, 2, 2, 1}, {1, 1, 1, 1}).in({1, 2, 2, 1}, kOneToFour).out({1, 3, 3, 1}).run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{1, 3, 2, 4, 10, 6, 3, 7, 4}));
}

TEST(RefConv2dGradWeight, AddsTheSumOverWindows) {
  KernelRun run(Op::Conv2dGradWeight, {{"stride", 1}, {"pad", 0}});
  run.in({1, 2, 2, 1}, {100, 100, 100, 100}).in({1, 3, 3, 1}, kOneToNine).in({1, 2, 2, 1}, {1, 1, 1, 1});
  run.in_place_out().run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{112, 116, 124, 128}));
}

}  // namespace
}  // namespace tandem::cpu
