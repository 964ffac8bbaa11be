#include <gtest/gtest.h>

#include "tandem/kernels/cpu/optimizer/sums_call_test.h"
#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

TEST(CudaParameterSums, MatchTheReferenceForEveryStorageType) {
  TANDEM_NEEDS_GPU();
  for (const OptimizerSetting& setting : cpu::measured_settings()) {
    for (DType packed : {DType::F32, DType::BF16, DType::U8}) {
      SCOPED_TRACE(fmt::format("{} {}", setting.name(), dtype_name(packed)));
      expect_as_reference(cpu::sums_call(setting, packed, {1, 255, 256, 1000, 3 * 8192 + 300}), 1e-5);
    }
  }
}

TEST(CudaParameterSums, TakeMoreParametersThanALaunchHas) {
  TANDEM_NEEDS_GPU();
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < 600; ++i) sizes.push_back(1 + i % 37);
  for (const OptimizerSetting& setting : cpu::measured_settings()) {
    if (setting.weight == DType::BF16 && setting.masters)
      expect_as_reference(cpu::sums_call(setting, DType::U8, sizes), 1e-5);
  }
}

}  // namespace
}  // namespace tandem::cuda
