#include <gtest/gtest.h>

#include "tandem/kernels/cpu/conv/image_kernels_test.h"

namespace tandem::cpu {
namespace {

struct Case {
  Shape x;
  int64_t groups;
};
const std::vector<Case> kCases = {{{3, 7, 5, 1}, 1},    {{2, 8, 8, 3}, 3},   {{2, 8, 8, 6}, 2},
                                  {{2, 7, 5, 16}, 4},   {{2, 8, 8, 33}, 11}, {{70, 3, 2, 12}, 3},
                                  {{1, 40, 30, 64}, 1}, {{4, 1, 1, 10}, 2}};

KernelRun forward(const Case& c, DType dtype) {
  const Shape channels{c.x.last()}, stats{c.x[0] * c.groups};
  KernelRun run(Op::GroupNorm, {{"eps", 1e-5}, {"groups", c.groups}});
  run.random_in(dtype, c.x, 1, 2).random_in(dtype, channels, 2).random_in(dtype, channels, 3);
  run.out(dtype, c.x).out(DType::F32, stats).out(DType::F32, stats);
  return run;
}

KernelRun backward(const Case& c, DType dtype) {
  const Shape channels{c.x.last()}, stats{c.x[0] * c.groups};
  KernelRun run(Op::GroupNormGrad, {{"groups", c.groups}});
  run.random_in(dtype, c.x, 1).random_in(dtype, c.x, 2).random_in(dtype, channels, 3);
  run.random_in(DType::F32, stats, 4, 0.1);
  run.in(DType::F32, stats, std::vector<double>(static_cast<size_t>(stats.elems()), 0.8));
  run.random_in(DType::F32, channels, 5).random_in(DType::F32, channels, 6);
  run.out(dtype, c.x).in_place_out().in_place_out();
  return run;
}

class GroupNorm : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Storage, GroupNorm, testing::Values(DType::F32, DType::BF16, DType::F16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_P(GroupNorm, MatchesReferenceForAnyNumberOfThreads) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(fmt::format("{} in {} groups", to_string(c.x), c.groups));
    expect_matches_reference(forward(c, GetParam()), "cpu.group_norm", storage_tolerance(GetParam()));
    expect_matches_reference(backward(c, GetParam()), "cpu.group_norm_grad", storage_tolerance(GetParam()));
  }
}

}  // namespace
}  // namespace tandem::cpu
