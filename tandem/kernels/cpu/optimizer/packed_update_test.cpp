#include <gtest/gtest.h>

#include "tandem/kernels/cpu/optimizer/optimizer_chunks.h"
#include "tandem/kernels/cpu/optimizer/packed_call_test.h"

namespace tandem::cpu {
namespace {

const std::vector<int64_t> kSizes = {1, 255, 256, 1000, kOptimizerChunk + 300};

// Weights do not depend on how the new states are rounded. Those are the reference's but for a few that lie
// where fp32 and double round apart.
TEST(PackedUpdate, MatchesTheReference) {
  const KernelRegistry registry = all_kernels();
  for (const OptimizerSetting& setting : packed_settings()) {
    for (DType packed : {DType::BF16, DType::U8}) {
      for (bool finite : {true, false}) {
        SCOPED_TRACE(setting.name());
        const Call call = packed_call(setting, packed, kSizes, finite);
        const std::vector<HostTensor> want = run(reference_kernel(call.op), call, pool_of(1));
        const std::vector<HostTensor> got = run(registry.by_name(setting.kernel()), call, pool_of(1));
        EXPECT_EQ(run(registry.by_name(setting.kernel()), call, pool_of(4)), got);
        const size_t group = got.size() / kSizes.size();
        int64_t apart = 0, codes = 0;
        for (size_t k = 0; k < got.size(); ++k) {
          const size_t place = k % group;
          if (place == 0) expect_near(got[k], want[k], 1e-6, "weight");
          if (place < 2 || place >= 2 + setting.num_states()) continue;
          for (int64_t i = 0; i < got[k].type.shape.elems(); ++i) {
            apart += got[k].at(i) != want[k].at(i) ? 1 : 0;
            ++codes;
          }
        }
        EXPECT_LE(apart, codes / 1000);
        if (!finite) {
          EXPECT_EQ(apart, 0);
        }
      }
    }
  }
}

TEST(PackedUpdate, RoundsOtherwiseInEveryStepAndAlikeInOne) {
  const KernelRegistry registry = all_kernels();
  const OptimizerSetting setting{Op::AdamW, DType::F32, DType::F32, false};
  Call call = packed_call(setting, DType::U8, {2048}, true);
  const std::vector<HostTensor> first = run(registry.by_name(setting.kernel()), call, pool_of(1));
  EXPECT_EQ(run(registry.by_name(setting.kernel()), call, pool_of(1)), first);
  call.attrs.set("keys", "1,0");  // another parameter
  EXPECT_NE(run(registry.by_name(setting.kernel()), call, pool_of(1)), first);
}

}  // namespace
}  // namespace tandem::cpu
