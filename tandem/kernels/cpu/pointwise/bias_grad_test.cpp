#include "tandem/kernels/cpu/pointwise/bias_grad.h"

#include "tandem/kernels/cpu/pointwise/pointwise_test.h"

namespace tandem::cpu {
namespace {

Call bias_grad(DType storage, DType acc_type, int64_t rows, int64_t width) {
  const HostTensor acc = random_tensor(acc_type, {width}, 1);
  return {Op::BiasGrad, {acc, random_tensor(storage, {rows, width}, 2)}, {acc.type}, {0}, {}};
}

TEST(BiasGrad, MatchesReferenceOverRaggedShapes) {
  for_ragged_shapes([](DType storage, int64_t rows, int64_t width) {
    expect_matches_reference(bias_grad(storage, DType::F32, rows, width), 2e-5);
  });
}

TEST(BiasGrad, MatchesReferenceForTallAndForWideMatrices) {
  expect_matches_reference(bias_grad(DType::F32, DType::F32, 3001, 7), 2e-4);
  expect_matches_reference(bias_grad(DType::F32, DType::F32, 40, 3000), 5e-5);
  expect_matches_reference(bias_grad(DType::BF16, DType::F32, 5, 40001), 2e-5);  // no chunks of rows
}

TEST(BiasGrad, AddsToAnAccumulatorOfTheStorageType) {
  for (const DType storage : {DType::BF16, DType::F16}) {
    expect_matches_reference(bias_grad(storage, storage, 100, 31), 1e-4);
  }
}

TEST(RowChunks, CoverTheRowsOnceInAtMost64Pieces) {
  for (int64_t rows = 1; rows < 5000; ++rows) {
    const RowChunks chunks(rows);
    ASSERT_LE(chunks.count, 64);
    ASSERT_EQ(chunks.begin(0), 0);
    ASSERT_EQ(chunks.end(chunks.count - 1), rows);
    ASSERT_LT(chunks.begin(chunks.count - 1), rows);
  }
}

}  // namespace
}  // namespace tandem::cpu
