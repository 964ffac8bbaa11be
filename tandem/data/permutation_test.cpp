#include "tandem/data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tandem/data/sampler.h"

namespace tandem {
namespace {

void expect_bijective(int64_t n, uint64_t key) {
  const Permutation permutation(n, key);
  std::vector<bool> seen(static_cast<size_t>(n), false);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t image = permutation(i);
    ASSERT_GE(image, 0);
    ASSERT_LT(image, n);
    ASSERT_FALSE(seen[static_cast<size_t>(image)]) << "n " << n << " twice " << image;
    seen[static_cast<size_t>(image)] = true;
  }
}

TEST(Permutation, IsBijectiveOnEverySmallSize) {
  for (int64_t n = 1; n <= 300; ++n) expect_bijective(n, static_cast<uint64_t>(n) * 31);
}

TEST(Permutation, IsBijectiveOnLargeSizes) {
  for (const int64_t n : {65535, 65536, 65537, 100000, 1000003}) expect_bijective(n, 5);
}

TEST(Permutation, StaysInRangeOnHugeSizes) {
  const int64_t n = (int64_t{1} << 62) + 12345;
  const Permutation permutation(n, 1);
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_GE(permutation(i), 0);
    EXPECT_LT(permutation(i), n);
  }
}

TEST(Permutation, SendsEachIndexEverywhereEquallyOftenOverKeys) {
  constexpr int64_t kSize = 11, kKeys = 11000;
  std::vector<int> counts(kSize * kSize, 0);
  for (uint64_t key = 0; key < kKeys; ++key) {
    const Permutation permutation(kSize, key);
    for (int64_t i = 0; i < kSize; ++i) ++counts[static_cast<size_t>(i * kSize + permutation(i))];
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 6.0 * std::sqrt(1000.0));
}

TEST(Permutation, LeavesNeighboursNoNearerThanChance) {
  constexpr int64_t kSize = 10000;
  const Permutation permutation(kSize, 3);
  int64_t near = 0;
  for (int64_t i = 1; i < kSize; ++i) near += std::abs(permutation(i) - permutation(i - 1)) <= 50;
  EXPECT_NEAR(static_cast<double>(near), 100.0, 60.0);
}

TEST(Sampler, VisitsEverySampleOncePerEpochInANewOrder) {
  constexpr int64_t kSize = 257;
  const Sampler sampler(kSize, true, 1);
  std::vector<std::vector<int64_t>> orders(3);
  for (int64_t g = 0; g < 3 * kSize; ++g)
    orders[static_cast<size_t>(sampler.epoch(g))].push_back(sampler.index(g));
  for (const auto& order : orders) {
    std::vector<int64_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (int64_t i = 0; i < kSize; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
  EXPECT_NE(Sampler(kSize, true, 2).index(0) + 1000 * Sampler(kSize, true, 2).index(1),
            orders[0][0] + 1000 * orders[0][1]);
}

TEST(Sampler, KeepsTheOrderWhereNothingIsShuffled) {
  const Sampler sampler(5, false, 1);
  for (int64_t g = 0; g < 12; ++g) EXPECT_EQ(sampler.index(g), g % 5);
}

}  // namespace
}  // namespace tandem
