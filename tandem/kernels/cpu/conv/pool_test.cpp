#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tandem/kernels/cpu/conv/image_kernels_test.h"

namespace tandem::cpu {
namespace {

struct Case {
  Shape x;
  int64_t size, stride, pad;

  Shape y() const {
    return {x[0], (x[1] + 2 * pad - size) / stride + 1, (x[2] + 2 * pad - size) / stride + 1, x[3]};
  }
};
const std::vector<Case> kCases = {
    {{3, 7, 5, 1}, 2, 2, 0}, {{2, 8, 8, 3}, 3, 2, 1}, {{2, 7, 5, 16}, 3, 1, 1},   {{1, 8, 8, 33}, 2, 2, 0},
    {{2, 1, 1, 5}, 1, 1, 0}, {{1, 1, 1, 5}, 3, 2, 1}, {{4, 30, 31, 40}, 3, 2, 1}, {{2, 9, 9, 20}, 5, 3, 2}};

class Pool : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Storage, Pool, testing::Values(DType::F32, DType::BF16, DType::F16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_P(Pool, MaximumAndItsGradientMatchReferenceForAnyNumberOfThreads) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(fmt::format("{} size {} stride {} pad {}", to_string(c.x), c.size, c.stride, c.pad));
    KernelRun forward(Op::MaxPool2d, {{"size", c.size}, {"stride", c.stride}, {"pad", c.pad}});
    forward.random_in(GetParam(), c.x, 1).out(GetParam(), c.y()).out(DType::I32, c.y());
    expect_matches_reference(forward, "cpu.max_pool2d", 0);

    KernelRun backward(Op::MaxPool2dGrad, {{"height", c.x[1]}, {"width", c.x[2]}});
    backward.random_in(GetParam(), c.y(), 2).in(DType::I32, c.y(), forward.run_reference().result(1));
    backward.out(GetParam(), c.x);
    expect_matches_reference(backward, "cpu.max_pool2d_grad", storage_tolerance(GetParam()));
  }
}

TEST_P(Pool, AverageAndItsGradientMatchReferenceForAnyNumberOfThreads) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(to_string(c.x));
    const Shape y{c.x[0], c.x[3]};
    expect_matches_reference(KernelRun(Op::GlobalAvgPool).random_in(GetParam(), c.x, 1).out(GetParam(), y),
                             "cpu.global_avg_pool", storage_tolerance(GetParam()));
    expect_matches_reference(KernelRun(Op::GlobalAvgPoolGrad, {{"height", c.x[1]}, {"width", c.x[2]}})
                                 .random_in(GetParam(), y, 1)
                                 .out(GetParam(), c.x),
                             "cpu.global_avg_pool_grad", storage_tolerance(GetParam()));
  }
}

TEST(Pool, FirstMaximumWinsAndNanWinsOverAll) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), low = -std::numeric_limits<double>::infinity();
  KernelRun run(Op::MaxPool2d, {{"size", int64_t{2}}, {"stride", int64_t{2}}, {"pad", int64_t{0}}});
  run.in(DType::F32, {1, 2, 6, 1}, {5, 5, 1, nan, low, low, 5, 5, 9, nan, low, low});
  run.out(DType::F32, {1, 1, 3, 1}).out(DType::I32, {1, 1, 3, 1});
  run.run(all_kernels(), "cpu.max_pool2d");
  EXPECT_EQ(run.result(1), (std::vector<double>{0, 3, 4}));
  EXPECT_EQ(run.result(0)[0], 5);
  EXPECT_TRUE(std::isnan(run.result(0)[1]));
  EXPECT_EQ(run.result(0)[2], low);
}

}  // namespace
}  // namespace tandem::cpu
