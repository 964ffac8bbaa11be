#include <gtest/gtest.h>

#include "tandem/kernels/cpu/ref/ref_kernel_run_test.h"
#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {
namespace {

struct Case {
  DType dtype;
  int64_t rows, dim, vocab, chunk;
  double scale = 1, cap = 0;
  std::string name() const {
    return fmt::format("{} rows {} dim {} vocab {} chunk {} scale {} cap {}", dtype_name(dtype), rows, dim,
                       vocab, chunk, scale, cap);
  }
};

KernelRun loss(const Case& c, Op op) {
  std::vector<double> targets;
  for (int64_t row = 0; row < c.rows; ++row) {
    targets.push_back(row % 4 == 2 ? -1 : static_cast<double>(row * 31 % c.vocab));
  }
  Attrs attrs{{"chunk", c.chunk}};
  if (c.scale != 1) attrs.set("scale", c.scale);
  if (c.cap != 0) attrs.set("softcap", c.cap);
  KernelRun run(op, attrs);
  run.random_in(c.dtype, {c.rows, c.dim}, 1).random_in(c.dtype, {c.vocab, c.dim}, 2, 0.3);
  run.in(DType::I32, {c.rows}, targets);
  if (op == Op::LinearCrossEntropyGrad) {
    run.in(DType::F32, {1}, {0.5}).random_in(DType::F32, {c.vocab, c.dim}, 3).out(c.dtype, {c.rows, c.dim});
  }
  run.out({2});
  if (op == Op::LinearCrossEntropyGrad) run.in_place_out();
  return run;
}

std::vector<Case> cases() {
  std::vector<Case> cases;
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    cases.push_back({dtype, 1, 1, 2, 1});
    cases.push_back({dtype, 7, 5, 11, 3});
    cases.push_back({dtype, 33, 64, 129, 16});
    cases.push_back({dtype, 20, 48, 2053, 64});
    cases.push_back({dtype, 33, 64, 129, 16, 0.4, 0});
    cases.push_back({dtype, 33, 64, 129, 16, 1, 1.5});
    cases.push_back({dtype, 33, 64, 129, 64, 0.7, 1.5});
  }
  return cases;
}

// The logits and their gradient are rounded to the storage type on the way.
double tolerance(DType dtype) { return dtype == DType::F32 ? 5e-6 : dtype == DType::BF16 ? 2e-2 : 3e-3; }

TEST(LinearCrossEntropyGrad, MatchesTheReferenceOverRaggedShapes) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name());
    KernelRun expected = loss(c, Op::LinearCrossEntropyGrad), actual = loss(c, Op::LinearCrossEntropyGrad);
    expected.run_reference();
    actual.run(all_kernels(), "cpu.linear_cross_entropy_grad");
    for (int i = 0; i < 3; ++i) expect_near(actual.result(i), expected.result(i), tolerance(c.dtype));
    if (c.dtype == DType::F32) {
      EXPECT_EQ(actual.result(1)[1], expected.result(1)[1]);
    }
  }
}

TEST(LinearCrossEntropy, MatchesTheReferenceOverRaggedShapes) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name());
    KernelRun expected = loss(c, Op::LinearCrossEntropy), actual = loss(c, Op::LinearCrossEntropy);
    expected.run_reference();
    actual.run(all_kernels(), "cpu.linear_cross_entropy");
    expect_near(actual.result(0), expected.result(0), tolerance(c.dtype));
  }
}

TEST(LinearCrossEntropyGrad, HasTheSameBitsForAnyThreadCount) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    KernelRun run = loss({dtype, 70, 96, 1500, 32}, Op::LinearCrossEntropyGrad);
    run.run(all_kernels(), "cpu.linear_cross_entropy_grad", 1);
    const auto dx = run.result_bytes(0), stats = run.result_bytes(1), dw = run.result_bytes(2);
    for (int threads : {2, 4}) {
      run.run(all_kernels(), "cpu.linear_cross_entropy_grad", threads);
      EXPECT_EQ(run.result_bytes(0), dx) << dtype_name(dtype) << " " << threads;
      EXPECT_EQ(run.result_bytes(1), stats) << dtype_name(dtype) << " " << threads;
      EXPECT_EQ(run.result_bytes(2), dw) << dtype_name(dtype) << " " << threads;
    }
  }
}

TEST(LinearCrossEntropyGrad, GivesTheSameInputGradientForAnyChunk) {
  KernelRun whole = loss({DType::F32, 37, 40, 300, 37}, Op::LinearCrossEntropyGrad);
  whole.run(all_kernels(), "cpu.linear_cross_entropy_grad");
  for (int64_t chunk : {int64_t{5}, int64_t{16}, int64_t{1000}}) {
    KernelRun run = loss({DType::F32, 37, 40, 300, chunk}, Op::LinearCrossEntropyGrad);
    run.run(all_kernels(), "cpu.linear_cross_entropy_grad");
    EXPECT_EQ(run.result_bytes(0), whole.result_bytes(0)) << chunk;
    expect_near(run.result(2), whole.result(2), 1e-6);
  }
}

}  // namespace
}  // namespace tandem::cpu
