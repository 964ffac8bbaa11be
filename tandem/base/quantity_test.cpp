#include "tandem/base/quantity.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem {
namespace {

TEST(Units, BytesUseBinaryPrefixesAndNeverShowFourDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.0 KiB");
  EXPECT_EQ(format_bytes(1536 * 1024), "1.5 MiB");
  EXPECT_EQ(format_bytes(int64_t{80} << 30), "80.0 GiB");
}

TEST(Units, OneOfAThingIsNotManyOfIt) {
  EXPECT_EQ(count_of(1, "thread"), "1 thread");
  EXPECT_EQ(count_of(0, "thread"), "0 threads");
  EXPECT_EQ(count_of(2, "data rank"), "2 data ranks");
  EXPECT_EQ(count_of(1, "pass"), "1 pass");
  EXPECT_EQ(count_of(8, "pass"), "8 passes");
}

TEST(Units, CountsKeepThreeDigits) {
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(999.7), "1.00k");
  EXPECT_EQ(format_count(12345), "12.3k");
  EXPECT_EQ(format_count(124e6), "124M");
  EXPECT_EQ(format_count(1.0373444e19), "10.4E");
  EXPECT_EQ(format_count(2.5e15), "2.50P");
  EXPECT_EQ(format_count(std::numeric_limits<double>::quiet_NaN()), "-");
}

TEST(Units, DurationsShowTheTwoLargestUnits) {
  EXPECT_EQ(format_duration(0.421), "0.42 s");
  EXPECT_EQ(format_duration(12.49), "12.5 s");
  EXPECT_EQ(format_duration(59.99), "1m 00s");
  EXPECT_EQ(format_duration(185), "3m 05s");
  EXPECT_EQ(format_duration(2 * 3600 + 7 * 60), "2h 07m");
  EXPECT_EQ(format_duration(4 * 86400 + 3 * 3600), "4d 03h");
}

TEST(Units, AWaitFitsIntoAClock) {
  EXPECT_EQ(wait_of(1.5), std::chrono::milliseconds(1500));
  const auto now = std::chrono::steady_clock::now();
  EXPECT_GT(now + wait_of(1e30), now + std::chrono::hours(24 * 365));
}

}  // namespace
}  // namespace tandem
