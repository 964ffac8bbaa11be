#include "tandem/kernels/cpu/optimizer/packed_call_test.h"
#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

// The CPU's kernel takes over where the optimizer is offloaded.
TEST(CudaPackedUpdate, HasTheBitsOfTheCpu) {
  TANDEM_NEEDS_GPU();
  const KernelRegistry registry = cpu::all_kernels();
  for (const OptimizerSetting& setting : cpu::packed_settings()) {
    for (DType packed : {DType::BF16, DType::U8}) {
      for (bool finite : {true, false}) {
        SCOPED_TRACE(setting.name());
        const Call call = cpu::packed_call(setting, packed, {1, 255, 256, 1000, 8192, 20000}, finite);
        EXPECT_EQ(run_on_gpu(call), cpu::run(registry.by_name(setting.kernel()), call, cpu::pool_of(1)));
      }
    }
  }
}

}  // namespace
}  // namespace tandem::cuda
