// Attention and rotary embedding, against numbers worked out by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"

namespace tandem::cpu {
namespace {

const double kLog3 = std::log(3.0);

TEST(RefRope, TurnsQueriesAndKeysByTheirPosition) {
  KernelRun run(Op::Rope, {{"heads", 1}, {"kv_heads", 1}, {"theta", 100.0}});
  run.in({1, 2, 12}, {1, 2, 0, 0, 0, 0, 1, 1, 5, 6, 7, 8, 1, 2, 0, 0, 0, 0, 1, 1, 5, 6, 7, 8});
  run.in_place_out().run_reference();
  // Position 0 stays; at position 1 the two pairs turn by 1 and by 100^(-1/2) = 0.1; values never turn.
  expect_near(run.result(0),
              {1,
               2,
               0,
               0,
               0,
               0,
               1,
               1,
               5,
               6,
               7,
               8,  //
               0.5403023059,
               1.9900083306,
               0.8414709848,
               0.1996668333,  //
               -0.8414709848,
               -0.0998334166,
               0.5403023059,
               0.9950041653,
               5,
               6,
               7,
               8},
              1e-9);
}

TEST(RefRopeGrad, TurnsBack) {
  const Attrs attrs = {{"heads", 2}, {"kv_heads", 1}, {"theta", 10000.0}};
  KernelRun forward(Op::Rope, attrs);
  forward.random_in(DType::F64, {2, 3, 24}, 1).in_place_out().run_reference();
  KernelRun backward(Op::RopeGrad, attrs);
  backward.in({2, 3, 24}, forward.result(0)).in_place_out().run_reference();
  KernelRun original(Op::Scale, {{"factor", 1.0}});
  original.random_in(DType::F64, {2, 3, 24}, 1).out({2, 3, 24}).run_reference();
  expect_near(backward.result(0), original.result(0), 1e-12);
}

TEST(RefAttention, CausalMixesWhatCameBefore) {
  KernelRun run(Op::Attention, {{"heads", 1}, {"kv_heads", 1}, {"causal", 1}});
  run.in({1, 2, 3}, {9, 0, 4, 1, kLog3, 8}).out({1, 2, 1}).out(DType::F64, {1, 1, 2}).run_reference();
  expect_near(run.result(0), {4, 7}, 1e-12);  // weights 1/4 and 3/4
  expect_near(run.result(1), {0, std::log(4.0)}, 1e-12);
}

TEST(RefAttention, ScalesByTheHeadSizeAndSharesKeysBetweenHeads) {
  KernelRun run(Op::Attention, {{"heads", 2}, {"kv_heads", 1}, {"causal", 0}});
  run.in({1, 2, 16}, {2, 0, 0, 0, 0, 0, 0, 0, 0,     0, 0, 0, 4, 0, 0, 1,  //
                      0, 0, 0, 0, 2, 0, 0, 0, kLog3, 0, 0, 0, 8, 0, 0, 3});
  run.out({1, 2, 8}).out({1, 2, 2}).run_reference();
  expect_near(run.result(0), {7, 0, 0, 2.5, 6, 0, 0, 2, 6, 0, 0, 2, 7, 0, 0, 2.5}, 1e-12);
  expect_near(run.result(1), {std::log(4.0), std::log(2.0), std::log(2.0), std::log(4.0)}, 1e-12);
}

TEST(RefAttentionGrad, MatchesTheFormulaByHand) {
  KernelRun run(Op::AttentionGrad, {{"heads", 1}, {"kv_heads", 1}, {"causal", 1}});
  run.in({1, 2, 1}, {0, 1}).in({1, 2, 3}, {9, 0, 4, 1, kLog3, 8}).in({1, 2, 1}, {4, 7});
  run.in({1, 1, 2}, {0, std::log(4.0)}).out({1, 2, 3}).run_reference();
  expect_near(run.result(0), {0, -0.75, 0.25, 0.75 * kLog3, 0.75, 0.75}, 1e-12);
}

TEST(RefAttentionGrad, SumsColumnsForABias) {
  for (const int64_t fresh : {0, 1}) {
    KernelRun run(Op::AttentionGrad,
                  {{"heads", 1}, {"kv_heads", 1}, {"causal", 1}, {"sums", 1}, {"fresh", fresh}});
    run.in({1, 2, 1}, {0, 1}).in({1, 2, 3}, {9, 0, 4, 1, kLog3, 8}).in({1, 2, 1}, {4, 7});
    run.in({1, 1, 2}, {0, std::log(4.0)}).in({3}, {1, 2, 3}).out({1, 2, 3}).out({3}).run_reference();
    const double before = fresh != 0 ? 0 : 1;
    expect_near(run.result(1), {before + 0.75 * kLog3, 2 * before, 3 * before + 1}, 1e-12);
  }
}

}  // namespace
}  // namespace tandem::cpu
