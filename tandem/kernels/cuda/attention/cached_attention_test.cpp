// The kernels of generation against the reference. A missing or foreign key, head or factor would show as
// 1e-2 or more.
#include "tandem/kernels/cpu/attention/cached_case_test.h"
#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

TEST(CudaCachedAttention, MatchesReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for (const cpu::CachedCase& c : cpu::cached_cases()) {
    SCOPED_TRACE(c.describe());
    expect_as_reference(c.call(), 1e-5, "cuda.cached_attention");
    if (HasFatalFailure()) return;
  }
}

TEST(CudaCachedAttention, HasLongerRangesInALongCache) {
  TANDEM_NEEDS_GPU();
  expect_as_reference(cpu::long_cached_case().call(), 1e-5, "cuda.cached_attention");
}

TEST(CudaGemv, MatchesReferenceOverRaggedShapes) {
  TANDEM_NEEDS_GPU();
  for (const DType dtype : kStorage) {
    for (const auto& [n, k] :
         {std::array<int64_t, 2>{1, 1}, {5, 7}, {33, 31}, {600, 576}, {100, 8192}, {300, 2048}, {129, 40}}) {
      for (const bool wide : {false, true}) {
        SCOPED_TRACE(fmt::format("{} n={} k={} wide {}", dtype_name(dtype), n, k, wide));
        expect_as_reference(cpu::few_rows_call(dtype, 1, n, k, wide, wide), 1e-5, "cuda.gemv");
        expect_as_reference(cpu::few_rows_call(dtype, 1, n, k, !wide, wide), 1e-5, "cuda.gemv");
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(CudaPositions, CountFromWhereTheTextStands) {
  TANDEM_NEEDS_GPU();
  for (const DType dtype : kStorage) {
    for (const int64_t first : {0, 5, 37}) {
      for (const int64_t rows : {1, 20}) {
        expect_as_reference(cpu::rope_at_call(dtype, rows, first), 4e-6, "cuda.rope");
        expect_as_reference(cpu::embedding_at_call(dtype, rows, first), 0, "cuda.embedding");
      }
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
