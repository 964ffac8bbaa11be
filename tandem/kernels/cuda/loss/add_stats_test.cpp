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

TEST(CudaMeasure, IsTheReferencesMean) {
  TANDEM_NEEDS_GPU();
  for (DType dtype : kStorage) {
    for (const int64_t elems : {1, 1000, 3 * 16384 + 5}) {
      for (const int64_t squares : {0, 1}) {
        const Call call{Op::Measure,
                        {random_tensor(dtype, Shape({elems}), 1)},
                        {{DType::F64, Shape({1})}},
                        {},
                        {{"squares", squares}}};
        const std::vector<HostTensor> want = cpu::run(cpu::reference_kernel(call.op), call, cpu::pool_of(1));
        EXPECT_NEAR(run_on_gpu(call)[0].at(0), want[0].at(0), 1e-12 * (1 + std::fabs(want[0].at(0))));
      }
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
