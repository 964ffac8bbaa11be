// Every file in configs/ has to load as it is.
#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/config/load.h"

namespace tandem {
namespace {

TEST(ShippedConfigs, LoadWithoutAnyOverrideAndAreNamedAfterTheirFile) {
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TANDEM_CONFIGS_DIR)) {
    ++num_files;
    EXPECT_EQ(load_config(entry.path()).config.name, entry.path().stem().string());
  }
  EXPECT_GT(num_files, 0);
}

}  // namespace
}  // namespace tandem
