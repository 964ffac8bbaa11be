#include "tandem/kernels/cpu/optimizer/matrix_call_test.h"
#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

// An offloaded momentum is updated by the CPU, to the same bits.
TEST(CudaMuonDirection, HasTheBitsOfTheCpu) {
  TANDEM_NEEDS_GPU();
  const KernelRegistry registry = cpu::all_kernels();
  for (DType gradient : kStorage) {
    for (DType direction : kStorage) {
      for (bool finite : {true, false}) {
        for (bool keep : {true, false}) {
          const Call call = cpu::direction_call(gradient, direction, 16384 + 77, finite, keep);
          EXPECT_EQ(run_on_gpu(call),
                    cpu::run(registry.by_name("cpu.muon_direction"), call, cpu::pool_of(1)));
        }
      }
    }
  }
}

TEST(CudaMatrixUpdate, MatchesTheReference) {
  TANDEM_NEEDS_GPU();
  for (DType dtype : kStorage) {
    for (const cpu::PlacedMatrix& matrix : cpu::placed_matrices()) {
      expect_as_reference(cpu::normalize_call(matrix, dtype));
      expect_as_reference(cpu::normalize_call(matrix, dtype, 0));
      expect_as_reference(cpu::place_call(matrix, dtype));
    }
    for (int shared : {-1, 0}) expect_as_reference(cpu::weighted_sum_call(dtype, 16384 + 5, shared));
  }
}

}  // namespace
}  // namespace tandem::cuda
