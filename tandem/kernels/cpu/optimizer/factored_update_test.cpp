#include <gtest/gtest.h>

#include "tandem/kernels/cpu/optimizer/factored_call_test.h"

namespace tandem::cpu {
namespace {

// Near the reference with every instruction set, and the same bits for any number of threads.
std::vector<HostTensor> expect_as_reference(const Call& call) {
  static const KernelRegistry kernels = all_kernels();
  const Kernel& kernel = kernels.by_name("cpu." + std::string(op_name(call.op)));
  const std::vector<HostTensor> want = run(reference_kernel(call.op), call, pool_of(1));
  for_each_target([&] {
    const std::vector<HostTensor> got = run(kernel, call, pool_of(1));
    for (size_t k = 0; k < got.size(); ++k) expect_near(got[k], want[k], 1e-6, fmt::format("output {}", k));
    for (int threads : {2, 4}) EXPECT_EQ(run(kernel, call, pool_of(threads)), got);
  });
  return want;
}

TEST(FactorSums, AddUpSquaresOfRowsAndColumns) {
  for (DType gradient : kStorage) {
    const HostTensor sums = expect_as_reference(factor_sums_call(gradient))[0];
    double rows = 0, cols = 0;
    for (int64_t i = 0; i < 37; ++i) rows += sums.at(i);
    for (int64_t i = 37; i < 337; ++i) cols += sums.at(i);
    EXPECT_NEAR(rows, cols, 1e-6 * rows);
    EXPECT_EQ(sums.at(337 + 2), 0);  // a row of which nothing is here
    EXPECT_GT(sums.at(337 + 9), 0);  // part of a row
    EXPECT_EQ(sums.at(737 + 6), 0);
    EXPECT_GT(sums.at(737 + 7), 0);
  }
}

TEST(FactorMoments, MoveByTheStepsShare) {
  const Call call = factor_moments_call(true);
  const std::vector<HostTensor> states = expect_as_reference(call);
  EXPECT_NEAR(states[0].at(0), 0.75 * call.in[3].at(0) + 0.25 * 0.5 / 300, 1e-6);
  const std::vector<HostTensor> same = expect_as_reference(factor_moments_call(false));
  EXPECT_EQ(same[0], call.in[3]);
}

TEST(FactorDirections, AreGradientsOverTheRootsOfTheirMeanSquares) {
  for (DType gradient : kStorage) {
    for (bool finite : {true, false}) {
      const Call call = factor_directions_call(gradient, finite);
      const std::vector<HostTensor> made = expect_as_reference(call);
      EXPECT_EQ(made[1], call.in[3]);
      if (!finite) {
        EXPECT_EQ(made[0], call.in[2]);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
