#include <gtest/gtest.h>

#include "tandem/kernels/cpu/optimizer/optimizer_chunks.h"
#include "tandem/kernels/cpu/optimizer/sums_call_test.h"

namespace tandem::cpu {
namespace {

const std::vector<int64_t> kSizes = {1, 255, 256, 1000, kOptimizerChunk + 300};

TEST(ParameterSums, MatchTheReferenceForEveryStorageTypeAndAnyThreadCount) {
  const KernelRegistry kernels = all_kernels();
  for (const OptimizerSetting& setting : measured_settings()) {
    for (DType packed : {DType::F32, DType::BF16, DType::U8}) {
      SCOPED_TRACE(fmt::format("{} {}", setting.name(), dtype_name(packed)));
      const Call call = sums_call(setting, packed, kSizes);
      const Kernel& kernel = kernels.by_name(fmt::format("cpu.{}", op_name(call.op)));
      const std::vector<HostTensor> want = run(reference_kernel(call.op), call, pool_of(1));
      const std::vector<HostTensor> got = run(kernel, call, pool_of(1));
      EXPECT_EQ(run(kernel, call, pool_of(4)), got);
      ASSERT_GT(got[0].at(0), 0);
      EXPECT_EQ(got[0].at(2 * 3), 0);  // nothing of that parameter is here
      for (int64_t i = 0; i < got[0].type.shape.elems(); ++i)
        ASSERT_NEAR(got[0].at(i), want[0].at(i), 1e-5 * want[0].at(i)) << i;
    }
  }
}

}  // namespace
}  // namespace tandem::cpu
