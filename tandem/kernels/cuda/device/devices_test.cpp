#include "tandem/kernels/cuda/device/devices.h"

#include <gtest/gtest.h>

namespace tandem::cuda {
namespace {

TEST(CudaDevices, HaveANameMemoryAndACapability) {
  if (!is_built()) GTEST_SKIP() << "built without CUDA";
  if (devices().empty()) GTEST_SKIP() << "no GPU on this machine";
  for (const Device& device : devices()) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.memory_bytes, 0);
    EXPECT_GE(device.major, 5);
  }
}

TEST(CudaDevices, ABuildWithoutCudaHasNone) {
  EXPECT_EQ(is_built(), !build_version().empty());
  if (!is_built()) {
    EXPECT_TRUE(devices().empty());
  }
}

}  // namespace
}  // namespace tandem::cuda
