// Losses and optimizers, against numbers worked out by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"
#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {
namespace {

const double kLog3 = std::log(3.0);

TEST(RefCrossEntropy, SumsTheLossAndCountsFirstMaxima) {
  KernelRun run(Op::CrossEntropy);
  run.in({4, 2}, {0, kLog3, 5, 5, 9, 9, 5, 5}).in(DType::I32, {4}, {1, 1, -1, 0}).out({2}).run_reference();
  // -log(3/4), log 2 (a tie lost by the second class), nothing, log 2 (a tie won by the first)
  expect_near(run.result(0), {-std::log(0.75) + 2 * std::log(2.0), 2}, 1e-12);
}

TEST(RefCrossEntropyGrad, OverwritesTheLogits) {
  KernelRun run(Op::CrossEntropyGrad);
  run.in({3, 2}, {0, kLog3, 1000, 1000, 9, 8}).in(DType::I32, {3}, {1, 0, -1}).in({1}, {2});
  run.in_place_out().out({2}).run_reference();
  expect_near(run.result(0), {0.5, -0.5, -1, 1, 0, 0}, 1e-12);
  expect_near(run.result(1), {-std::log(0.75) + std::log(2.0), 2}, 1e-12);
}

TEST(RefCrossEntropy, RefusesATargetOutsideTheClasses) {
  KernelRun run(Op::CrossEntropy);
  run.in({1, 2}, {0, 0}).in(DType::I32, {1}, {2}).out({2});
  EXPECT_THROW(run.run_reference(), BugError);
}

TEST(RefLinearCrossEntropy, ProjectsFirst) {
  KernelRun run(Op::LinearCrossEntropy, {{"chunk", 1}});
  run.in({2, 1}, {1, 2}).in({2, 1}, {0, kLog3}).in(DType::I32, {2}, {0, 1}).out({2}).run_reference();
  expect_near(run.result(0), {std::log(4.0) - std::log(0.9), 1}, 1e-12);
}

TEST(RefLinearCrossEntropyGrad, GivesBothGradients) {
  KernelRun run(Op::LinearCrossEntropyGrad, {{"chunk", 1}});
  run.in({2, 1}, {1, 2}).in({2, 1}, {0, kLog3}).in(DType::I32, {2}, {0, 1}).in({1}, {10});
  run.in({2, 1}, {100, 200}).out({2, 1}).out({2}).in_place_out().run_reference();
  // Rows of dlogits: 10 {-3/4, 3/4} and 10 {1/10, -1/10}.
  expect_near(run.result(0), {7.5 * kLog3, -1 * kLog3}, 1e-12);
  expect_near(run.result(1), {std::log(4.0) - std::log(0.9), 1}, 1e-12);
  expect_near(run.result(2), {100 - 7.5 + 2, 200 + 7.5 - 2}, 1e-12);
}

TEST(RefAddStats, AddsToTheFirstOfThem) {
  KernelRun run(Op::AddStats);
  run.in({3}, {1, 2, 3}).in({2}, {10, 20}).in_place_out().run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{11, 22, 3}));
}

// {lr, decay, step, 1 / loss scale, clip, and the optimizer's own}
KernelRun& with_hyper(KernelRun& run, const std::vector<double>& hyper) {
  return run.in({static_cast<int64_t>(hyper.size())}, hyper);
}

TEST(RefSquareSums, UnscalesAndAddsThePiecesOfASlot) {
  KernelRun run(Op::SquareSums, {{"slots", "0,2,0"}, {"num_slots", 3}});
  with_hyper(run, {0, 0, 1, 0.5, 0, 0, 0, 0, 0, 0}).in({2}, {7, 8});
  run.in({1}, {6}).in({2}, {0, 4}).in({1}, {8}).out({6}).run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{9 + 16, 0, 4, 0, 7, 8}));
}

TEST(RefSquareSums, CountsThePiecesThatAreNotFinite) {
  KernelRun run(Op::SquareSums, {{"slots", "0,0,1"}, {"num_slots", 2}});
  with_hyper(run, {0, 0, 1, 1, 0, 0, 0, 0, 0, 0}).in({0}, {});
  run.in({1}, {HUGE_VAL}).in({2}, {1, std::nan("")}).in({1}, {3}).out({3}).run_reference();
  EXPECT_EQ(run.result(0)[1], 9);
  EXPECT_EQ(run.result(0)[2], 2);
}

TEST(RefGlobalNorm, IsTheRootOfTheSlotsAndFiniteIfEverythingWas) {
  const auto norm = [](const std::vector<double>& sums) {
    KernelRun run(Op::GlobalNorm, {{"num_slots", 2}});
    return run.in({5}, sums).out({2}).run_reference().result(0);
  };
  EXPECT_EQ(norm({9, 16, 0, 7, 8}), (std::vector<double>{5, 1}));
  EXPECT_EQ(norm({9, 16, 1, 7, 8})[1], 0);
  EXPECT_EQ(norm({9, HUGE_VAL, 0, 7, 8})[1], 0);
}

TEST(RefAdamW, FirstStepMovesByTheLearningRate) {
  KernelRun run(Op::AdamW, {{"masters", 0}, {"decay", "1,0"}});
  with_hyper(run, {0.1, 0.01, 1, 0.25, 0, 0, 0, 0.9, 0.999, 0}).in({2}, {0.5, 1});
  for (int param = 0; param < 2; ++param) run.in({1}, {1}).in({1}, {2}).in({1}, {0}).in({1}, {0});
  for (int output = 0; output < 8; ++output) run.in_place_out();
  run.run_reference();
  expect_near(run.result(0), {0.999 - 0.1}, 1e-12);  // the gradient is 2 / 4
  EXPECT_EQ(run.result(1), (std::vector<double>{0}));
  expect_near(run.result(2), {0.05}, 1e-12);
  expect_near(run.result(3), {0.00025}, 1e-12);
  expect_near(run.result(4), {1 - 0.1}, 1e-12);  // not decayed
}

TEST(RefAdamW, CorrectsTheBiasOfLaterSteps) {
  KernelRun run(Op::AdamW, {{"masters", 0}, {"decay", "0"}});
  with_hyper(run, {0.1, 0, 2, 1, 0, 0, 0, 0.5, 0.75, 1}).in({2}, {4, 1});
  run.in({1}, {10}).in({1}, {4}).in({1}, {2}).in({1}, {3});
  for (int output = 0; output < 4; ++output) run.in_place_out();
  run.run_reference();
  // m = 1 + 2 = 3, v = 2.25 + 4 = 6.25; m / 0.75 = 4, v / 0.4375 = 14.2857..., sqrt 3.7796...
  expect_near(run.result(0), {10 - 0.1 * 4 / (3.7796447300922722 + 1)}, 1e-12);
}

TEST(RefAdamW, ClipsByTheGlobalNorm) {
  KernelRun run(Op::AdamW, {{"masters", 0}, {"decay", "0"}});
  with_hyper(run, {0.1, 0, 1, 1, 2, 0, 0, 0.9, 0.999, 0}).in({2}, {8, 1});
  run.in({1}, {1}).in({1}, {4}).in({1}, {0}).in({1}, {0});
  for (int output = 0; output < 4; ++output) run.in_place_out();
  expect_near(run.run_reference().result(2), {0.1}, 1e-6);  // 4 * 2 / 8 = 1
}

TEST(RefAdamW, RoundsTheMasterIntoTheWeight) {
  KernelRun run(Op::AdamW, {{"masters", 1}, {"decay", "0"}});
  with_hyper(run, {0x1p-12, 0, 1, 1, 0, 0, 0, 0.9, 0.999, 0}).in({2}, {1, 1});
  run.in(DType::F16, {1}, {1}).in({1}, {-1}).in({1}, {0}).in({1}, {0}).in(DType::F32, {1}, {1});
  for (int output = 0; output < 5; ++output) run.in_place_out();
  run.run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{1}));  // too small a step for f16
  EXPECT_EQ(run.result(4), (std::vector<double>{1 + 0x1p-12}));
}

TEST(RefAdamW, KeepsOfTheMasterWhatABf16WeightLacks) {
  const auto stepped = [](double rate, double low) {
    KernelRun run(Op::AdamW, {{"masters", 1}, {"decay", "0"}});
    with_hyper(run, {rate, 0, 1, 1, 0, 0, 0, 0.9, 0.999, 0}).in({2}, {1, 1});
    run.in(DType::BF16, {1}, {1}).in({1}, {-1}).in({1}, {0}).in({1}, {0}).in(DType::I16, {1}, {low});
    for (int output = 0; output < 5; ++output) run.in_place_out();
    run.run_reference();
    return std::pair(run.result(0)[0], run.result(4)[0]);  // the low half counts 2^-23 beside 1
  };
  EXPECT_EQ(stepped(0x1p-10, 0), (std::pair<double, double>{1, 0x1p13}));  // too small a step for bf16
  EXPECT_EQ(stepped(0x1p-10, 0x1p13), (std::pair<double, double>{1, 0x1p14}));
  EXPECT_EQ(stepped(0x1p-8, 0), (std::pair<double, double>{1 + 0x1p-7, -0x1p15}));  // half way
}

TEST(RefAdamW, SkipsAStepWhoseGradientsAreNotFinite) {
  KernelRun run(Op::AdamW, {{"masters", 0}, {"decay", "1"}});
  with_hyper(run, {0.1, 0.1, 1, 1, 0, 0, 0, 0.9, 0.999, 0}).in({2}, {HUGE_VAL, 0});
  run.in({1}, {1}).in({1}, {HUGE_VAL}).in({1}, {2}).in({1}, {3});
  for (int output = 0; output < 4; ++output) run.in_place_out();
  run.run_reference();
  const std::vector<double> expected = {1, 0, 2, 3};
  for (int output = 0; output < 4; ++output) {
    EXPECT_EQ(run.result(output)[0], expected[static_cast<size_t>(output)]);
  }
}

TEST(RefSgd, AddsDecayToTheGradientAndKeepsMomentum) {
  KernelRun run(Op::Sgd, {{"masters", 0}, {"decay", "1,0"}});
  with_hyper(run, {0.1, 0.1, 1, 0.5, 0, 0, 0, 0.9}).in({2}, {1, 1});
  for (int param = 0; param < 2; ++param) run.in({1}, {1}).in({1}, {4}).in({1}, {3});
  for (int output = 0; output < 6; ++output) run.in_place_out();
  run.run_reference();
  expect_near(run.result(0), {1 - 0.1 * 4.8}, 1e-12);
  EXPECT_EQ(run.result(1), (std::vector<double>{0}));
  expect_near(run.result(2), {4.8}, 1e-12);  // 2.7 + 2 + 0.1
  expect_near(run.result(5), {4.7}, 1e-12);
}

TEST(RefLion, MovesByTheSignAndDecaysApart) {
  KernelRun run(Op::Lion, {{"masters", 0}, {"decay", "1,0"}});
  with_hyper(run, {0.125, 0.5, 1, 0.5, 0, 0, 0, 0.5, 0.75}).in({2}, {1, 1});
  for (int param = 0; param < 2; ++param) run.in({2}, {4, 4}).in({2}, {-4, 8}).in({2}, {4, -4});
  for (int output = 0; output < 6; ++output) run.in_place_out();
  run.run_reference();
  EXPECT_EQ(run.result(0), (std::vector<double>{4 - 0.25 - 0.125, 4 - 0.25}));  // directions 1 and 0
  EXPECT_EQ(run.result(1), (std::vector<double>{0, 0}));
  EXPECT_EQ(run.result(2), (std::vector<double>{3 - 0.5, -3 + 1}));
  EXPECT_EQ(run.result(3), (std::vector<double>{4 - 0.125, 4}));  // not decayed
}

TEST(RefAddStats, AddsFromAPlaceOn) {
  KernelRun run(Op::AddStats, {{"at", int64_t{1}}});
  run.in({3}, {1, 2, 3}).in({1}, {0.5}).in_place_out();
  EXPECT_EQ(run.run_reference().result(0), (std::vector<double>{1, 2.5, 3}));
}

TEST(Measure, IsAMeanOnAnyNumberOfThreads) {
  for (int64_t squares : {0, 1}) {
    for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      KernelRun run(Op::Measure, {{"squares", squares}});
      run.random_in(dtype, {70001}, 4).out({1});
      KernelRun threads = run, reference = run;
      run.run(all_kernels(), "cpu.measure");
      threads.run(all_kernels(), "cpu.measure", 3);
      reference.run_reference();
      EXPECT_EQ(run.result(0), threads.result(0));
      EXPECT_NEAR(run.result(0)[0], reference.result(0)[0], 1e-12);
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
