#include "tandem/kernels/cuda/device/nvml.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "tandem/kernels/cuda/kernel_test.h"

namespace tandem::cuda {
namespace {

TEST(Nvml, AGpuThatIsNotThereHasNoFiguresAndIsNoError) {
  const HealthProbe probe = watch_gpu(1000);
  EXPECT_FALSE(probe().has_value());
  EXPECT_FALSE(probe().has_value());
}

TEST(Nvml, FiguresOfAGpuAreThoseOfAWorkingMachine) {
  TANDEM_NEEDS_GPU();
  const HealthProbe probe = watch_gpu(0);
  const std::optional<DeviceHealth> health = probe();
  if (!health) GTEST_SKIP() << "no management library here";
  if (health->busy_percent) {
    EXPECT_GE(*health->busy_percent, 0);
    EXPECT_LE(*health->busy_percent, 100);
  }
  if (health->power_w) {
    EXPECT_GT(*health->power_w, 1);
    EXPECT_LT(*health->power_w, 5000);
  }
  if (health->temperature_c) {
    EXPECT_GT(*health->temperature_c, 0);
    EXPECT_LT(*health->temperature_c, 120);
  }
  ASSERT_TRUE(health->used_bytes.has_value());
  EXPECT_GE(*health->used_bytes, 0);
  EXPECT_LE(*health->used_bytes,
            devices().front().memory_bytes * 11 / 10);  // CUDA counts less than the board's
}

TEST(Nvml, FiguresAreNotWaitedForAfterTheFirst) {
  TANDEM_NEEDS_GPU();
  const HealthProbe probe = watch_gpu(0);
  probe();
  // To ask the driver takes milliseconds. The quickest of many calls is one that nothing else held up.
  auto quickest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 1000; ++i) {
    const auto start = std::chrono::steady_clock::now();
    probe();
    quickest = std::min(quickest, std::chrono::steady_clock::now() - start);
  }
  EXPECT_LT(quickest, std::chrono::microseconds(100));
}

}  // namespace
}  // namespace tandem::cuda
