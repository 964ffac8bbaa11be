// Convolutions against the reference over ragged shapes, and the same bits for any number of threads.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/kernels/cpu/conv/image_kernels_test.h"

namespace tandem::cpu {
namespace {

struct Case {
  int64_t images, height, width, in, out, kernel, stride, pad;

  Shape x() const { return {images, height, width, in}; }
  Shape w() const { return {out, kernel, kernel, in}; }
  Shape y() const {
    return {images, (height + 2 * pad - kernel) / stride + 1, (width + 2 * pad - kernel) / stride + 1, out};
  }
  double weight_scale() const { return 1 / std::sqrt(static_cast<double>(kernel * kernel * in)); }
  bool valid() const { return height + 2 * pad >= kernel && width + 2 * pad >= kernel; }
  Attrs attrs() const { return {{"stride", stride}, {"pad", pad}}; }
  Attrs grad_attrs() const {
    return {{"stride", stride}, {"pad", pad}, {"height", height}, {"width", width}};
  }
};

std::string name(const Case& c) {
  return fmt::format("x {} w {} stride {} pad {}", to_string(c.x()), to_string(c.w()), c.stride, c.pad);
}

std::vector<Case> ragged_cases() {
  std::vector<Case> cases;
  const int64_t channels[][2] = {{1, 1}, {3, 16}, {5, 33}, {16, 5}, {33, 3}};
  const int64_t images[][3] = {{3, 7, 5}, {2, 8, 8}, {2, 1, 1}};
  for (const auto& [in, out] : channels) {
    for (const auto& [n, height, width] : images) {
      for (int64_t kernel : {1, 3, 5}) {
        for (int64_t stride : {1, 2}) {
          for (int64_t pad : {0, 1, 2}) {
            const Case c{n, height, width, in, out, kernel, stride, pad};
            if (c.valid()) cases.push_back(c);
          }
        }
      }
    }
  }
  cases.push_back({20, 3, 4, 16, 16, 3, 1, 1});  // several images in one block
  cases.push_back({2, 40, 17, 8, 20, 3, 1, 1});  // several blocks in one image
  cases.push_back({1, 6, 6, 150, 70, 3, 1, 1});  // several slices of input channels
  cases.push_back({1, 5, 5, 9, 9, 2, 3, 0});     // a stride beyond the kernel: pixels no tap reaches
  cases.push_back({2, 9, 6, 4, 6, 3, 3, 2});
  return cases;
}

KernelRun forward(const Case& c, DType dtype, bool bias) {
  KernelRun run(Op::Conv2d, c.attrs());
  run.random_in(dtype, c.x(), 1).random_in(dtype, c.w(), 2, c.weight_scale());
  if (bias) run.random_in(dtype, {c.out}, 3);
  run.out(dtype, c.y());
  return run;
}

KernelRun grad_input(const Case& c, DType dtype) {
  KernelRun run(Op::Conv2dGradInput, c.grad_attrs());
  run.random_in(dtype, c.y(), 1).random_in(dtype, c.w(), 2, c.weight_scale()).out(dtype, c.x());
  return run;
}

KernelRun grad_weight(const Case& c, DType dtype) {
  KernelRun run(Op::Conv2dGradWeight, c.attrs());
  run.random_in(DType::F32, c.w(), 1).random_in(dtype, c.x(), 2).random_in(dtype, c.y(), 3);
  run.out(DType::F32, c.w());
  return run;
}

class Conv : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Storage, Conv, testing::Values(DType::F32, DType::BF16, DType::F16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_P(Conv, ForwardMatchesReferenceForAnyNumberOfThreads) {
  for (const Case& c : ragged_cases()) {
    SCOPED_TRACE(name(c));
    expect_matches_reference(forward(c, GetParam(), c.pad == 1), "cpu.conv2d", storage_tolerance(GetParam()));
  }
}

TEST_P(Conv, InputGradientMatchesReferenceForAnyNumberOfThreads) {
  for (const Case& c : ragged_cases()) {
    SCOPED_TRACE(name(c));
    expect_matches_reference(grad_input(c, GetParam()), "cpu.conv2d_grad_input",
                             storage_tolerance(GetParam()));
  }
}

TEST_P(Conv, WeightGradientIsAddedAndMatchesReferenceForAnyNumberOfThreads) {
  for (const Case& c : ragged_cases()) {
    SCOPED_TRACE(name(c));
    expect_matches_reference(grad_weight(c, GetParam()), "cpu.conv2d_grad_weight", 2e-5);
  }
}

TEST(Conv, FastKernelsLeaveDoublesToTheReference) {
  const Case c{1, 4, 4, 2, 2, 3, 1, 1};
  const KernelRegistry registry = all_kernels();
  EXPECT_FALSE(forward(c, DType::F64, false).supported_by(registry, "cpu.conv2d"));
  EXPECT_FALSE(grad_input(c, DType::F64).supported_by(registry, "cpu.conv2d_grad_input"));
  EXPECT_FALSE(grad_weight(c, DType::F64).supported_by(registry, "cpu.conv2d_grad_weight"));
}

}  // namespace
}  // namespace tandem::cpu
