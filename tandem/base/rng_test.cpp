#include "tandem/base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace tandem {
namespace {

TEST(Rng, MatchesThePublishedVectorsOfPhilox) {
  // Random123's known answers for philox4x32-10: all zeros, and all ones.
  EXPECT_EQ(Rng(0, 0).block(0),
            (std::array<uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(Rng(~0ull, ~0ull).block(~0ull),
            (std::array<uint32_t, 4>{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
}

TEST(Rng, UniformsAndNormalsHaveTheirMoments) {
  const Rng rng(1, 2);
  double sum = 0, square = 0, normal = 0, normal_square = 0;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; ++i) {
    const double u = rng.uniform(static_cast<uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    square += u * u;
  }
  for (int i = 0; i < kCount / 4; ++i) {
    float values[4];
    rng.normals(static_cast<uint64_t>(i), values);
    for (float x : values) {
      normal += x;
      normal_square += static_cast<double>(x) * x;
    }
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.004);
  EXPECT_NEAR(square / kCount, 1.0 / 3.0, 0.004);
  EXPECT_NEAR(normal / kCount, 0.0, 0.012);
  EXPECT_NEAR(normal_square / kCount, 1.0, 0.02);
}

TEST(Rng, NormalsAreBoxMullerOfTheBits) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Rng rng(seed, 9);
    const auto raw = rng.block(3);
    float values[4];
    rng.normals(3, values);
    for (size_t pair = 0; pair < 2; ++pair) {
      const double radius = std::sqrt(-2 * std::log((raw[2 * pair] + 0.5) * 0x1p-32));
      const double angle = 2 * std::numbers::pi * raw[2 * pair + 1] * 0x1p-32;
      ASSERT_NEAR(values[2 * pair], radius * std::cos(angle), 1e-6);
      ASSERT_NEAR(values[2 * pair + 1], radius * std::sin(angle), 1e-6);
    }
  }
}

TEST(Rng, ManyNormalsAreThoseOfTheirBlocks) {
  const Rng rng(5, 6);
  for (const uint64_t first : {uint64_t{0}, uint64_t{3}, (uint64_t{1} << 32) - 7}) {
    std::vector<float> many(4 * 150);
    rng.normals(first, many);
    for (size_t block = 0; block < 150; ++block) {
      float one[4];
      rng.normals(first + block, one);
      for (size_t i = 0; i < 4; ++i) ASSERT_EQ(many[4 * block + i], one[i]) << first << " + " << block;
    }
  }
}

TEST(Rng, BelowStaysBelowAndReachesEveryValue) {
  RngCursor cursor(3, 4);
  int seen[7] = {};
  for (int i = 0; i < 1000; ++i) ++seen[cursor.below(7)];
  for (int count : seen) EXPECT_GT(count, 80);
}

}  // namespace
}  // namespace tandem
