#include "tandem/base/system.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr size_t kBlock = size_t{64} << 20;

// Touches kBlock fresh bytes and gives them back to the kernel when it goes.
class TouchedBlock {
 public:
  TouchedBlock()
      : data_(::mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    std::memset(data_, 1, kBlock);
  }
  ~TouchedBlock() { ::munmap(data_, kBlock); }

 private:
  void* data_;
};

constexpr int64_t kMost = static_cast<int64_t>(kBlock) * 9 / 10;

TEST(System, NamesTheMachine) {
  EXPECT_FALSE(hostname().empty());
  EXPECT_FALSE(cpu_model().empty());
  EXPECT_GT(total_memory_bytes(), int64_t{64} << 20);
  EXPECT_NE(hardware_description().find(cpu_model()), std::string::npos);
}

TEST(System, ResidentMemoryRisesWithTouchedPagesAndFallsWhenTheyGo) {
  const int64_t before = rss_bytes();
  {
    const TouchedBlock block;
    EXPECT_GT(rss_bytes(), before + kMost);
  }
  EXPECT_LT(rss_bytes(), before + kMost);
}

TEST(System, PeakOutlivesTheMemory) {
  const int64_t before = rss_bytes();
  { const TouchedBlock block; }
  EXPECT_GT(peak_rss_bytes(), before + kMost);
  EXPECT_LT(rss_bytes(), before + kMost);
}

TEST(System, FreeDiskSpaceOfAMissingPathIsAnErrorThatNamesIt) {
  EXPECT_GT(free_disk_bytes(testing::TempDir()), 0);
  try {
    free_disk_bytes("/no/such/place");
    FAIL() << "expected an IoError";
  } catch (const IoError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("/no/such/place: ")) << error.what();
  }
}

TEST(System, TimeIsIso8601InUtc) {
  const std::string time = utc_time();
  std::string pattern = time;
  for (char& c : pattern) c = c >= '0' && c <= '9' ? '0' : c;
  EXPECT_EQ(pattern, "0000-00-00T00:00:00.000Z") << time;
  EXPECT_GE(time, "2025");
}

}  // namespace
}  // namespace tandem
