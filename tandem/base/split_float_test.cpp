#include "tandem/base/split_float.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tandem/base/dtype.h"
#include "tandem/base/error.h"

namespace tandem {
namespace {

bool is_nan(uint32_t bits) { return std::isnan(std::bit_cast<float>(bits)); }

// Every upper half with the lower halves around zero, a half and the ends.
template <typename Visit>
void for_each_pattern(const Visit& visit) {
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t middle : {0x0000u, 0x4000u, 0x8000u, 0xc000u, 0xffffu}) {
      for (uint32_t lower = middle - 3; lower != middle + 4; ++lower) visit(upper << 16 | (lower & 0xffffu));
    }
  }
}

TEST(SplitFloat, GivesBackTheBitsOfEveryNumber) {
  for_each_pattern([](uint32_t bits) {
    if (is_nan(bits)) return;
    ASSERT_EQ(join_bits(split_bits(bits)), bits);
  });
}

TEST(SplitFloat, GivesBackTheBitsOfAllLowerHalves) {
  for (const uint32_t upper : {0x0000u, 0x0001u, 0x007fu, 0x3f80u, 0x7f7fu, 0x8000u, 0xbf80u, 0xff7fu}) {
    for (uint32_t lower = 0; lower < 0x10000; ++lower) {
      const uint32_t bits = upper << 16 | lower;
      ASSERT_EQ(join_bits(split_bits(bits)), bits);
    }
  }
}

// `high` is the nearest bf16; of two that are as near, the one farther from zero.
TEST(SplitFloat, RoundsHalfAwayFromZero) {
  for_each_pattern([](uint32_t bits) {
    if (is_nan(bits)) return;
    const uint16_t nearest = to_bfloat16(std::bit_cast<float>(bits)).bits;
    const bool tie = (bits & 0xffffu) == 0x8000u;
    ASSERT_EQ(split_bits(bits).high, tie ? (bits >> 16) + 1 : nearest) << std::hex << bits;
  });
}

TEST(SplitFloat, KeepsNaNsNaNs) {
  for_each_pattern([](uint32_t bits) {
    if (!is_nan(bits)) return;
    const SplitFloat halves = split_bits(bits);
    ASSERT_TRUE(std::isnan(to_float(BFloat16{halves.high}))) << std::hex << bits;
    ASSERT_TRUE(is_nan(join_bits(halves))) << std::hex << bits;
    ASSERT_EQ(join_bits(split_bits(join_bits(halves))), join_bits(halves)) << std::hex << bits;
  });
}

TEST(SplitFloat, KeepsTheEndsOfTheRange) {
  constexpr float kMax = std::numeric_limits<float>::max();
  EXPECT_EQ(to_float(BFloat16{split_float(kMax).high}), INFINITY);
  EXPECT_EQ(join_float(split_float(kMax)), kMax);
  EXPECT_EQ(join_float(split_float(-kMax)), -kMax);
  EXPECT_EQ(join_float(split_float(-INFINITY)), -INFINITY);
  EXPECT_TRUE(std::signbit(join_float(split_float(-0.0f))));
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(split_float(-kTiny).high, 0x8000) << "rounds to minus zero";
  EXPECT_EQ(join_float(split_float(-kTiny)), -kTiny);
}

TEST(SplitFloat, SplitsAndJoinsMany) {
  std::vector<float> floats, back(1001);
  for (size_t i = 0; i < back.size(); ++i) floats.push_back(std::sin(static_cast<float>(i)) * 1e3f);
  std::vector<uint16_t> high(floats.size());
  std::vector<int16_t> low(floats.size());
  split_floats(std::as_bytes(std::span(floats)), std::as_writable_bytes(std::span(high)),
               std::as_writable_bytes(std::span(low)));
  for (size_t i = 0; i < floats.size(); ++i) {
    EXPECT_EQ(high[i], split_float(floats[i]).high);
    EXPECT_EQ(low[i], split_float(floats[i]).low);
  }
  join_floats(std::as_bytes(std::span(high)), std::as_bytes(std::span(low)),
              std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back, floats);
  EXPECT_THROW(join_floats(std::as_bytes(std::span(high).first(5)), std::as_bytes(std::span(low).first(5)),
                           std::as_writable_bytes(std::span(back))),
               BugError);
}

}  // namespace
}  // namespace tandem
