#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

TEST(CudaAddStats, AddsToTheFirstOfThemAsTheReferenceDoes) {
  TANDEM_NEEDS_GPU();
  for (const int64_t elems : {2, 3}) {
    const HostTensor acc = random_tensor(DType::F64, Shape({elems}), 1, 1000);
    const HostTensor stats = random_tensor(DType::F64, Shape({2}), 2, 1000);
    const Call call{Op::AddStats, {acc, stats}, {acc.type}, {0}, {}};
    EXPECT_EQ(run_on_gpu(call), cpu::run(cpu::reference_kernel(call.op), call, cpu::pool_of(1)));
  }
}

}  // namespace
}  // namespace tandem::cuda
