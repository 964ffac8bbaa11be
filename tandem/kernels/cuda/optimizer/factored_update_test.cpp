#include "tandem/kernels/cpu/optimizer/factored_call_test.h"
#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

TEST(CudaFactoredUpdate, MatchesTheReference) {
  TANDEM_NEEDS_GPU();
  for (bool finite : {true, false}) {
    expect_as_reference(cpu::factor_moments_call(finite));
    for (DType gradient : kStorage) {
      expect_as_reference(cpu::factor_sums_call(gradient));
      expect_as_reference(cpu::factor_directions_call(gradient, finite));
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
