// Pointwise, shape, pooling and embedding ops, against numbers worked out by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"

namespace tandem::cpu {
namespace {

using Values = std::vector<double>;

TEST(RefAdd, Adds) {
  EXPECT_EQ(KernelRun(Op::Add).in({2}, {1, 2}).in({2}, {3, 5}).out({2}).run_reference().result(0),
            (Values{4, 7}));
}

TEST(RefScale, Multiplies) {
  KernelRun run(Op::Scale, {{"factor", -0.5}});
  EXPECT_EQ(run.in({2}, {1, 4}).out({2}).run_reference().result(0), (Values{-0.5, -2}));
}

TEST(RefGelu, IsTheTanhForm) {
  KernelRun run(Op::Gelu);
  run.in({4}, {1, -1, 0, 2}).out({4}).run_reference();
  expect_near(run.result(0), {0.8411919906, -0.1588080094, 0, 1.9545976941}, 1e-9);
}

TEST(RefGeluGrad, MultipliesByTheSlope) {
  KernelRun run(Op::GeluGrad);
  run.in({3}, {2, 1, 1}).in({3}, {1, -1, 0}).out({3}).run_reference();
  expect_near(run.result(0), {2 * 1.0829640838, -0.0829640838, 0.5}, 1e-9);
}

TEST(RefRelu, CutsBelowZero) {
  EXPECT_EQ(KernelRun(Op::Relu).in({3}, {-1, 0, 2}).out({3}).run_reference().result(0), (Values{0, 0, 2}));
}

TEST(RefReluGrad, PassesWhereTheOutputIsPositive) {
  KernelRun run(Op::ReluGrad);
  EXPECT_EQ(run.in({3}, {5, 6, 7}).in({3}, {0, 1e-30, 2}).out({3}).run_reference().result(0),
            (Values{0, 6, 7}));
}

TEST(RefSoftcap, BendsTowardsItsCap) {
  KernelRun run(Op::Softcap, {{"cap", 2.0}});
  run.in({4}, {2, -1, 0, 1000}).out({4}).run_reference();
  expect_near(run.result(0), {1.5231883119, -0.9242343145, 0, 2}, 1e-9);
}

TEST(RefSoftcapGrad, MultipliesByTheSlope) {
  KernelRun run(Op::SoftcapGrad, {{"cap", 2.0}});
  run.in({3}, {3, 1, 5}).in({3}, {2, -1, 0}).out({3}).run_reference();
  expect_near(run.result(0), {3 * 0.4199743416, 0.7864477330, 5}, 1e-9);
}

TEST(RefSwiglu, GatesTheSecondHalf) {
  KernelRun run(Op::Swiglu);
  run.in({2, 4}, {1, 0, 2, 9, 0, 1, 7, -1}).out({2, 2}).run_reference();
  expect_near(run.result(0), {1.4621171573, 0, 0, -0.7310585786}, 1e-9);
}

TEST(RefSwigluGrad, GivesGateThenUp) {
  KernelRun run(Op::SwigluGrad);
  run.in({1, 2}, {1, 3}).in({1, 4}, {1, 0, 2, 9}).out({1, 4}).run_reference();
  // Row by hand: dgate = dy up s (1 + g (1 - s)), dup = dy g s; at g = 0, s = 1/2.
  expect_near(run.result(0), {2 * 0.9276705118, 13.5, 0.7310585786, 0}, 1e-9);
}

TEST(RefConcat, JoinsRows) {
  KernelRun run(Op::Concat);
  run.in({2, 1}, {1, 2}).in({2, 2}, {3, 4, 5, 6}).in({2, 1}, {7, 8}).out({2, 4}).run_reference();
  EXPECT_EQ(run.result(0), (Values{1, 3, 4, 7, 2, 5, 6, 8}));
}

TEST(RefSlice, TakesColumns) {
  KernelRun run(Op::Slice, {{"begin", 1}, {"size", 2}});
  EXPECT_EQ(run.in({2, 4}, {1, 3, 4, 7, 2, 5, 6, 8}).out({2, 2}).run_reference().result(0),
            (Values{3, 4, 5, 6}));
}

TEST(RefZeros, AndCopyWriteTheWholeOutput) {
  EXPECT_EQ(KernelRun(Op::Zeros).out({3}).run_reference().result(0), (Values{0, 0, 0}));
  KernelRun fresh(Op::Copy, {{"to", "host"}}), placed = fresh;
  EXPECT_EQ(fresh.in({3}, {1, 2, 3}).out({3}).run_reference().result(0), (Values{1, 2, 3}));
  placed.in({3}, {1, 2, 3}).in({3}, {7, 8, 9}).in_place_out().run_reference();
  EXPECT_EQ(placed.result(0), (Values{1, 2, 3}));
}

TEST(RefCast, RoundsToNearestEven) {
  KernelRun to_bf16(Op::Cast, {{"dtype", "bf16"}});
  to_bf16.in(DType::F32, {3}, {1 + 0x1p-8, 1 + 0x3p-8, -3.5}).out(DType::BF16, {3}).run_reference();
  EXPECT_EQ(to_bf16.result(0), (Values{1, 1 + 0x4p-8, -3.5}));
  KernelRun to_f16(Op::Cast, {{"dtype", "f16"}});
  to_f16.in(DType::F32, {2}, {1 + 0x1p-11, 65536}).out(DType::F16, {2}).run_reference();
  EXPECT_EQ(to_f16.result(0), (Values{1, HUGE_VAL}));
}

TEST(RefMaxPool2d, NeverPicksThePadding) {
  KernelRun run(Op::MaxPool2d, {{"size", 2}, {"stride", 2}, {"pad", 1}});
  run.in({1, 3, 3, 1}, {-1, -2, -3, -4, -5, -6, -7, -8, -9}).out({1, 2, 2, 1}).out(DType::I32, {1, 2, 2, 1});
  run.run_reference();
  EXPECT_EQ(run.result(0), (Values{-1, -2, -4, -5}));
  EXPECT_EQ(run.result(1), (Values{0, 1, 3, 4}));
}

TEST(RefMaxPool2d, PicksTheFirstOfEqualsInEachImageAndChannel) {
  KernelRun run(Op::MaxPool2d, {{"size", 2}, {"stride", 2}, {"pad", 0}});
  run.in({2, 2, 2, 2}, {7, 0, 7, 1, 7, 3, 7, 2, 0, 5, 1, 5, 0, 5, 0, 5}).out({2, 1, 1, 2});
  run.out(DType::I32, {2, 1, 1, 2}).run_reference();
  EXPECT_EQ(run.result(0), (Values{7, 3, 1, 5}));
  EXPECT_EQ(run.result(1), (Values{0, 2, 1, 0}));
}

TEST(RefMaxPool2dGrad, AddsWhereWindowsShareAMaximum) {
  KernelRun run(Op::MaxPool2dGrad, {{"height", 2}, {"width", 2}});
  run.in({2, 1, 2, 1}, {1, 2, 3, 4})
      .in(DType::I32, {2, 1, 2, 1}, {1, 1, 3, 0})
      .out({2, 2, 2, 1})
      .run_reference();
  EXPECT_EQ(run.result(0), (Values{0, 3, 0, 0, 4, 0, 0, 3}));
}

TEST(RefGlobalAvgPool, AveragesEachChannelOfAnImage) {
  KernelRun run(Op::GlobalAvgPool);
  run.in({2, 2, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 10}).out({2, 2}).run_reference();
  EXPECT_EQ(run.result(0), (Values{2, 3, 6, 8}));
}

TEST(RefGlobalAvgPoolGrad, SharesEqually) {
  KernelRun run(Op::GlobalAvgPoolGrad, {{"height", 2}, {"width", 1}});
  run.in({2, 2}, {2, 4, 6, 8}).out({2, 2, 1, 2}).run_reference();
  EXPECT_EQ(run.result(0), (Values{1, 2, 1, 2, 3, 4, 3, 4}));
}

TEST(RefEmbedding, AddsThePosition) {
  KernelRun run(Op::Embedding);
  run.in(DType::I32, {2, 2}, {2, 0, 1, 2}).in({3, 2}, {1, 2, 3, 4, 5, 6}).in({2, 2}, {10, 20, 30, 40});
  EXPECT_EQ(run.out({2, 2, 2}).run_reference().result(0), (Values{15, 26, 31, 42, 13, 24, 35, 46}));
}

TEST(RefEmbedding, RefusesATokenOutsideTheVocabulary) {
  KernelRun run(Op::Embedding);
  run.in(DType::I32, {1, 1}, {3}).in({3, 1}, {1, 2, 3}).out({1, 1, 1});
  EXPECT_THROW(run.run_reference(), BugError);
}

TEST(RefEmbeddingGrad, AddsRowsOfTheSameToken) {
  KernelRun run(Op::EmbeddingGrad);
  run.in({3, 2}, {100, 100, 100, 100, 100, 100}).in(DType::I32, {1, 3}, {2, 0, 2});
  run.in({1, 3, 2}, {1, 2, 3, 4, 5, 6}).in_place_out().run_reference();
  EXPECT_EQ(run.result(0), (Values{103, 104, 100, 100, 106, 108}));
}

TEST(RefPositionGrad, AddsOverTheBatch) {
  KernelRun run(Op::PositionGrad);
  run.in({2, 2}, {10, 20, 30, 40}).in({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}).in_place_out().run_reference();
  EXPECT_EQ(run.result(0), (Values{16, 28, 40, 52}));
}

}  // namespace
}  // namespace tandem::cpu
