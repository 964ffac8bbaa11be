#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {
namespace {

// Runs the kernel that the registry chooses, with exactly the workspace it asks for.
void run_op(Op op, const std::vector<TensorArg>& in, const std::vector<TensorArg>& out, const Attrs& attrs) {
  KernelRegistry registry;
  add_matmul_kernels(registry);
  CallSignature call{op, {}, {}, &attrs};
  for (const TensorArg& arg : in) call.in.push_back(arg.type);
  for (const TensorArg& arg : out) call.out.push_back(arg.type);
  const Kernel& kernel = registry.choose(call);
  ThreadPool pool(2);
  const size_t bytes = kernel.workspace(call, pool.num_threads());
  auto* scratch = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  Stream stream(pool);
  kernel.run({in, out, attrs, {scratch, bytes}}, stream);
  std::free(scratch);
}

TensorArg tensor(std::vector<float>& values, Shape shape) {
  EXPECT_EQ(static_cast<int64_t>(values.size()), shape.elems());
  return {values.data(), {DType::F32, std::move(shape)}};
}

TEST(MatmulKernels, CollapseLeadingDimsAndAddBias) {
  std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8}, w = {1, 0, 0, 1, 1, 1}, bias = {10, 20, 30}, y(12);
  run_op(Op::Matmul, {tensor(x, {2, 2, 2}), tensor(w, {3, 2}), tensor(bias, {3})}, {tensor(y, {2, 2, 3})},
         {{"trans_a", int64_t{0}}, {"trans_b", int64_t{1}}});
  EXPECT_EQ(y, (std::vector<float>{11, 22, 33, 13, 24, 37, 15, 26, 41, 17, 28, 45}));
}

TEST(MatmulKernels, MultiplyWithoutTransposesByDefault) {
  std::vector<float> a = {1, 2, 3, 4}, b = {1, 1, 0, 2}, y(4);
  run_op(Op::Matmul, {tensor(a, {2, 2}), tensor(b, {2, 2})}, {tensor(y, {2, 2})}, {});
  EXPECT_EQ(y, (std::vector<float>{1, 5, 3, 11}));
}

TEST(MatmulKernels, GeluGivesActivationAndPreActivation) {
  std::vector<float> x = {1, -1}, w = {1, 2}, bias = {0, 0.5f}, act(4), pre(4);
  run_op(Op::MatmulGelu, {tensor(x, {2, 1}), tensor(w, {2, 1}), tensor(bias, {2})},
         {tensor(act, {2, 2}), tensor(pre, {2, 2})}, {{"trans_b", int64_t{1}}});
  EXPECT_EQ(pre, (std::vector<float>{1, 2.5f, -1, -1.5f}));
  for (size_t i = 0; i < 4; ++i) {
    const double v = pre[i];
    EXPECT_NEAR(act[i], 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))), 1e-6);
  }
}

std::vector<BFloat16> half(const std::vector<float>& values) {
  std::vector<BFloat16> halves;
  for (float value : values) halves.push_back(to_bfloat16(value));
  return halves;
}

TEST(MatmulKernels, AWideProductOfHalfPrecisionOperandsIsNotRounded) {
  std::vector<BFloat16> x = half({256, 1, 256, 3}), w = half({1, 1, 2, 1, 0, 1}), bias = half({0, 0.5f, 256});
  std::vector<float> y(6);
  run_op(Op::Matmul,
         {{x.data(), {DType::BF16, {2, 2}}},
          {w.data(), {DType::BF16, {3, 2}}},
          {bias.data(), {DType::BF16, {3}}}},
         {tensor(y, {2, 3})}, {{"trans_b", int64_t{1}}, {"wide", int64_t{1}}});
  EXPECT_EQ(y, (std::vector<float>{257, 513.5f, 257, 259, 515.5f, 259}));  // bf16 has steps of 2 and 4 there
}

// A weight's gradient: dy is [tokens, out], x is [tokens, in], in bf16, accumulated in fp32.
TEST(MatmulKernels, AccumulateWeightGradientsOfHalfPrecisionOperands) {
  std::vector<BFloat16> dy = half({1, 2, 3, 4, 5, 6}), x = half({1, 0, 2, 1, 0, 3});
  std::vector<float> dw = {100, 200, 300, 400};
  const TensorArg acc = tensor(dw, {2, 2});
  run_op(Op::MatmulAcc, {acc, {dy.data(), {DType::BF16, {1, 3, 2}}}, {x.data(), {DType::BF16, {1, 3, 2}}}},
         {acc}, {{"trans_a", int64_t{1}}});
  EXPECT_EQ(dw, (std::vector<float>{107, 218, 310, 422}));
}

TEST(MatmulKernels, LeaveDoublesToTheReference) {
  KernelRegistry registry;
  add_matmul_kernels(registry);
  const Attrs attrs;
  const TensorType wide{DType::F64, {2, 2}};
  for (const Kernel* kernel : registry.for_op(Op::Matmul)) {
    EXPECT_FALSE(kernel->supports({Op::Matmul, {wide, wide}, {wide}, &attrs}));
  }
}

}  // namespace
}  // namespace tandem::cpu
