#include <gtest/gtest.h>

#include "tandem/kernels/cpu/optimizer/matrix_call_test.h"

namespace tandem::cpu {
namespace {

const Kernel& kernel_of(Op op) {
  static const KernelRegistry registry = all_kernels();
  return registry.by_name("cpu." + std::string(op_name(op)));
}

// Near the reference with every instruction set, and the same bits for any number of threads.
void expect_as_reference(const Call& call) {
  const std::vector<HostTensor> want = run(reference_kernel(call.op), call, pool_of(1));
  for_each_target([&] {
    const std::vector<HostTensor> got = run(kernel_of(call.op), call, pool_of(1));
    for (size_t k = 0; k < got.size(); ++k) expect_near(got[k], want[k], 1e-6, fmt::format("output {}", k));
    for (int threads : {2, 4}) EXPECT_EQ(run(kernel_of(call.op), call, pool_of(threads)), got);
  });
}

TEST(MuonDirection, MatchesTheReferenceForEveryType) {
  for (DType gradient : kStorage) {
    for (DType direction : kStorage) {
      for (bool finite : {true, false}) {
        for (bool keep : {true, false})
          expect_as_reference(direction_call(gradient, direction, 16384 + 77, finite, keep));
      }
    }
  }
}

TEST(MuonDirection, LeavesTheMomentumWhereTheGradientIsNotFinite) {
  const Call call = direction_call(DType::F32, DType::F32, 100, /*finite=*/false, /*keep=*/false);
  const std::vector<HostTensor> got = run(kernel_of(call.op), call, pool_of(1));
  EXPECT_EQ(got[0], HostTensor(DType::F32, {100}));
  EXPECT_EQ(got[1], HostTensor(DType::F32, {100}));
  EXPECT_EQ(got[2], call.in[3]);
}

TEST(NormalizeMatrix, TakesAMatrixOutOfItsParts) {
  for (const PlacedMatrix& matrix : placed_matrices()) {
    for (DType dtype : kStorage) {
      expect_as_reference(normalize_call(matrix, dtype));
      expect_as_reference(normalize_call(matrix, dtype, 0));  // zeros stay zeros
    }
  }
}

TEST(PlaceMatrix, PutsAMatrixBackWhereItLay) {
  for (const PlacedMatrix& matrix : placed_matrices()) {
    for (DType dtype : kStorage) expect_as_reference(place_call(matrix, dtype));
  }
}

TEST(WeightedSum, MatchesTheReferenceAndMayWriteOverAnOperand) {
  for (DType dtype : kStorage) {
    for (int shared : {-1, 0}) expect_as_reference(weighted_sum_call(dtype, 16384 + 5, shared));
  }
}

}  // namespace
}  // namespace tandem::cpu
