#include "tandem/base/exact/exact_squares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tandem {
namespace {

using Limbs = std::array<double, ExactSquares::kLimbs>;

Limbs limbs_of(std::span<const float> values) {
  ExactSquares sum;
  sum.add(values);
  Limbs limbs;
  sum.write(limbs);
  return limbs;
}

// Of all exponents, both signs, and numbers below the normal ones.
std::vector<float> wild_numbers(size_t count) {
  std::mt19937 random(7);
  std::vector<float> values;
  while (values.size() < count) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

TEST(ExactSquares, GivesTheSquareOfOneNumber) {
  for (float value : {1.0f, -3.0f, 0.1f, 1e-20f, 1e18f, std::numeric_limits<float>::max(),
                      std::numeric_limits<float>::min(), std::numeric_limits<float>::denorm_min()}) {
    EXPECT_EQ(ExactSquares::total(limbs_of({&value, 1})), static_cast<double>(value) * value) << value;
  }
  EXPECT_EQ(ExactSquares::total(limbs_of({})), 0);
}

TEST(ExactSquares, ShowsNeitherOrderNorGroups) {
  std::vector<float> values = wild_numbers(100000);
  const Limbs all = limbs_of(values);
  std::shuffle(values.begin(), values.end(), std::mt19937(1));
  EXPECT_EQ(limbs_of(values), all);
  for (size_t ranks : {2, 3, 8}) {
    Limbs sum{};
    for (size_t rank = 0; rank < ranks; ++rank) {
      const size_t begin = values.size() * rank / ranks, end = values.size() * (rank + 1) / ranks;
      const Limbs part = limbs_of(std::span(values).subspan(begin, end - begin));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    EXPECT_EQ(ExactSquares::total(sum), ExactSquares::total(all)) << ranks;
  }
}

TEST(ExactSquares, KeepsWhatIsSmallBesideWhatIsLarge) {
  std::vector<float> values(1 << 20, 0x1p-30f);
  values.push_back(1);
  EXPECT_EQ(ExactSquares::total(limbs_of(values)), 1 + 0x1p-40);
}

TEST(ExactSquares, JoinsSums) {
  const std::vector<float> values = wild_numbers(1000);
  ExactSquares sum, rest;
  sum.add(std::span(values).first(10));
  rest.add(std::span(values).subspan(10));
  sum.add(rest);
  Limbs limbs;
  sum.write(limbs);
  EXPECT_EQ(limbs, limbs_of(values));
}

TEST(ExactSquares, NoticesWhatIsNotFinite) {
  for (float value : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                      std::numeric_limits<float>::quiet_NaN()}) {
    ExactSquares sum;
    sum.add(std::array{1.0f, value});
    EXPECT_FALSE(sum.is_finite());
    ExactSquares other;
    other.add(sum);
    EXPECT_FALSE(other.is_finite());
  }
  ExactSquares sum;
  sum.add(std::array{std::numeric_limits<float>::max()});
  EXPECT_TRUE(sum.is_finite());
}

}  // namespace
}  // namespace tandem
