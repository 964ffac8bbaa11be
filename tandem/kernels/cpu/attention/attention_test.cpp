// The fast attention kernels against the reference, which does all arithmetic in double. Inputs are standard
// normals, so scores, outputs and gradients are of order one. A kernel's own error is fp32 rounding of sums
// of head_dim or tokens such terms, some 1e-6; rounding to bf16 or f16 may then turn either way, one unit in
// the last place. A missing key, head or factor would show as 1e-2 or more.
#include <gtest/gtest.h>

#include "hwy/highway.h"
#include "tandem/kernels/cpu/attention/attention_case_test.h"
#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"
#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {
namespace {

using Case = AttentionCase;

KernelRegistry fast_kernels() {
  KernelRegistry registry;
  add_attention_kernels(registry);
  return registry;
}

double tolerance(DType dtype, double fp32) {
  if (dtype == DType::BF16) return 0x1p-7 + fp32;
  if (dtype == DType::F16) return 0x1p-10 + fp32;
  return fp32;
}

KernelRun forward_run(const Case& c, double deviation = 1) {
  KernelRun run(Op::Attention, c.attrs());
  run.random_in(c.dtype, c.qkv().shape, 1, deviation);
  if (c.segmented) run.in(DType::I32, {c.batch, c.tokens}, c.segments());
  run.out(c.dtype, c.out().shape).out(DType::F32, c.lse().shape);
  return run;
}

// Takes the output and log-sum-exp that the reference's forward pass gives.
KernelRun backward_run(const Case& c) {
  KernelRun forward = forward_run(c);
  forward.run_reference();
  KernelRun run(Op::AttentionGrad, c.attrs());
  run.random_in(c.dtype, c.out().shape, 2)
      .random_in(c.dtype, c.qkv().shape, 1)
      .in(c.dtype, c.out().shape, forward.result(0));
  run.in(DType::F32, c.lse().shape, forward.result(1));
  if (c.segmented) run.in(DType::I32, {c.batch, c.tokens}, c.segments());
  run.out(c.dtype, c.qkv().shape);
  return run;
}

void expect_forward_matches(const Case& c) {
  SCOPED_TRACE(c.describe());
  KernelRun expected = forward_run(c);
  expected.run_reference();
  KernelRun actual = forward_run(c);
  actual.run(fast_kernels(), "cpu.attention");
  expect_near(actual.result(0), expected.result(0), tolerance(c.dtype, 3e-6));
  expect_near(actual.result(1), expected.result(1), 3e-6);
}

void expect_backward_matches(const Case& c) {
  SCOPED_TRACE(c.describe());
  KernelRun expected = backward_run(c);
  KernelRun actual = expected;
  expected.run_reference();
  actual.run(fast_kernels(), "cpu.attention_grad");
  expect_near(actual.result(0), expected.result(0), tolerance(c.dtype, 1e-5));
}

// Every length with every head size; groupings, masks and types take turns.
std::vector<Case> ragged_cases() {
  std::vector<Case> cases;
  const DType dtypes[] = {DType::F32, DType::BF16, DType::F32, DType::F16};
  const std::pair<int64_t, int64_t> heads[] = {{1, 1}, {2, 1}, {2, 2}, {4, 1}, {4, 2}};
  int64_t n = 0;
  for (const int64_t tokens : {1, 5, 63, 64, 65, 130, 257}) {
    for (const int64_t head_dim : {16, 32, 48, 64, 80, 128}) {
      const auto [num_heads, kv_heads] = heads[tokens > 200 ? n % 3 : n % 5];
      const DType dtype = dtypes[n % 4];
      cases.push_back({tokens < 64 ? 2 : 1, tokens, num_heads, kv_heads, head_dim, n % 3 != 0, dtype});
      ++n;
    }
  }
  for (const DType dtype : dtypes) {
    for (const int64_t causal : {0, 1}) cases.push_back({1, 130, 4, 2, 20, causal, dtype});
  }
  return cases;
}

TEST(Attention, MatchesReferenceOverRaggedShapes) {
  for (const Case& c : ragged_cases()) {
    expect_forward_matches(c);
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionGrad, MatchesReferenceOverRaggedShapes) {
  for (const Case& c : ragged_cases()) {
    expect_backward_matches(c);
    if (HasFatalFailure()) return;
  }
}

// Windows below a tile, a tile, between blocks and beyond the sequence; caps, scales, segments take turns.
std::vector<Case> masked_cases() {
  std::vector<Case> cases;
  const DType dtypes[] = {DType::F32, DType::BF16, DType::F32, DType::F16};
  const int64_t head_dims[] = {40, 80, 96, 256, 16};
  int64_t n = 0;
  for (const int64_t tokens : {1, 5, 65, 130, 300}) {
    for (const int64_t window : {0, 1, 3, 8, 17, 64, 100, 257}) {
      const bool masked = window != 0;
      cases.push_back({tokens < 64 ? 2 : 1, tokens, 2, n % 2 + 1, head_dims[n % 5], masked || n % 2 == 0,
                       dtypes[n % 4], window, n % 3 == 0 ? 0.8 : 0, n % 4 == 1 ? 0.3 : 0, n % 5 < 2});
      ++n;
    }
  }
  for (const int64_t window : {1, 63, 65, 192, 255, 256, 257, 320, 449, 512}) {  // at the edges of blocks
    cases.push_back({1, 530, 1, 1, 8, 1, DType::F32, window, 0, 0, window % 2 == 0});
  }
  for (const int64_t window : {30, 250, 600}) cases.push_back({1, 1100, 1, 1, 16, 1, DType::F32, window});
  return cases;
}

TEST(Attention, MatchesReferenceWithWindowsCapsScalesAndSegments) {
  for (const Case& c : masked_cases()) {
    expect_forward_matches(c);
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionGrad, MatchesReferenceWithWindowsCapsScalesAndSegments) {
  for (const Case& c : masked_cases()) {
    expect_backward_matches(c);
    if (HasFatalFailure()) return;
  }
}

TEST(Attention, AWindowOfAllTokensGivesTheBitsOfNone) {
  Case c{1, 300, 2, 1, 48, 1, DType::F32};
  const auto none = forward_run(c).run(fast_kernels(), "cpu.attention").result_bytes(0);
  c.window = 300;
  EXPECT_EQ(forward_run(c).run(fast_kernels(), "cpu.attention").result_bytes(0), none);
}

TEST(Attention, MatchesReferenceOverSeveralChunksOfQueries) {
  expect_forward_matches({1, 1100, 1, 1, 16, 1, DType::F32});
  expect_forward_matches({1, 600, 2, 1, 16, 0, DType::F32});
}

TEST(AttentionGrad, MatchesReferenceOverManyBlocks) {
  expect_backward_matches({1, 700, 2, 1, 16, 1, DType::F32});
}

// Products of normals of deviation 30 reach into the thousands: exp of a score alone would overflow.
TEST(Attention, StaysFiniteForLargeScores) {
  const Case c{1, 200, 2, 1, 32, 1, DType::F32};
  KernelRun expected = forward_run(c, 30);
  KernelRun actual = expected;
  expected.run_reference();
  actual.run(fast_kernels(), "cpu.attention");
  expect_near(actual.result(1), expected.result(1), 3e-6);
  expect_near(actual.result(0), expected.result(0), 2e-3);  // scores of 5000 are known to 3e-4 in fp32
}

TEST(Attention, GivesTheSameBitsForAnyThreadCount) {
  for (const Case& c : {Case{2, 257, 4, 2, 48, 1, DType::F32}, Case{1, 1030, 2, 1, 16, 0, DType::BF16}}) {
    KernelRun one = forward_run(c);
    one.run(fast_kernels(), "cpu.attention", 1);
    for (const int threads : {2, 4}) {
      KernelRun many = forward_run(c);
      many.run(fast_kernels(), "cpu.attention", threads);
      EXPECT_EQ(one.result_bytes(0), many.result_bytes(0)) << c.describe();
      EXPECT_EQ(one.result_bytes(1), many.result_bytes(1)) << c.describe();
    }
  }
}

TEST(AttentionGrad, GivesTheSameBitsForAnyThreadCount) {
  KernelRun run = backward_run({2, 257, 4, 2, 48, 1, DType::F32});
  const auto one = run.run(fast_kernels(), "cpu.attention_grad", 1).result_bytes(0);
  for (const int threads : {2, 4}) {
    EXPECT_EQ(one, run.run(fast_kernels(), "cpu.attention_grad", threads).result_bytes(0));
  }
}

TEST(Attention, MatchesReferenceOnEveryInstructionSet) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (const int64_t causal : {0, 1}) {
      expect_forward_matches({1, 150, 2, 1, 40, causal, DType::F32});
      expect_backward_matches({1, 150, 2, 1, 40, causal, DType::BF16});
      expect_forward_matches({1, 150, 2, 1, 40, causal, DType::F32, 0, 0.8, 0.2, true});
      expect_backward_matches({1, 150, 2, 1, 40, causal, DType::BF16, 0, 0.8, 0.2, true});
    }
    for (const int64_t window : {3, 37}) {
      expect_forward_matches({1, 150, 2, 1, 40, 1, DType::F32, window});
      expect_backward_matches({1, 150, 2, 1, 40, 1, DType::F32, window});
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(Attention, ScratchGrowsWithTokensTimesHeadDimOnly) {
  const KernelRegistry registry = fast_kernels();
  const auto bytes = [&](int64_t tokens) {
    const Case c{1, tokens, 1, 1, 64, 1, DType::F32};
    const Attrs attrs = c.attrs();
    const TensorType qkv = c.qkv(), out = c.out(), lse = c.lse();
    const CallSignature call{Op::AttentionGrad, {out, qkv, out, lse}, {qkv}, &attrs};
    return registry.by_name("cpu.attention_grad").workspace(call, 1);
  };
  EXPECT_LT(bytes(32768), 9 * bytes(4096));
}

TEST(Attention, LeavesOddTypesAndShapesToTheReference) {
  const KernelRegistry registry = fast_kernels();
  const auto supported = [&](DType dtype, int64_t heads, int64_t kv_heads, int64_t width) {
    KernelRun run(Op::Attention, {{"heads", heads}, {"kv_heads", kv_heads}, {"causal", 1}});
    run.random_in(dtype, {1, 2, width}, 1).out(dtype, {1, 2, width}).out(DType::F32, {1, heads, 2});
    return run.supported_by(registry, "cpu.attention");
  };
  EXPECT_TRUE(supported(DType::F32, 4, 2, 64));
  EXPECT_FALSE(supported(DType::F64, 4, 2, 64));
  EXPECT_FALSE(supported(DType::F32, 4, 3, 100));
}

}  // namespace
}  // namespace tandem::cpu
