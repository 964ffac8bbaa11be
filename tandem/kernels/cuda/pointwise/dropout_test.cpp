#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

// Rows that begin with a block of random numbers and rows that do not; a rank's part of them.
TEST(CudaDropout, HasTheBitsOfTheCpu) {
  TANDEM_NEEDS_GPU();
  const KernelRegistry registry = cpu::all_kernels();
  for (DType dtype : kStorage) {
    for (int64_t width : {1, 3, 64, 770, 4096}) {
      for (int64_t first : {0, 5}) {
        Call call{Op::Dropout, {cpu::random_tensor(dtype, {3, 7, width}, 1)}, {}, {-1}, {}};
        call.attrs = {{"rate", 0.3},
                      {"site", int64_t{4}},
                      {"rows", int64_t{7}},
                      {"first", first},
                      {"seed", int64_t{9}}};
        HostTensor sample(DType::I32, {2});
        for (int64_t i : {0, 1}) cpu::ref::set(sample.arg(), i, i == 0 ? 77 : 1);
        call.in.push_back(sample);
        call.out = {call.in[0].type};
        EXPECT_EQ(run_on_gpu(call), cpu::run(registry.by_name("cpu.dropout"), call, cpu::pool_of(1)));
      }
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
