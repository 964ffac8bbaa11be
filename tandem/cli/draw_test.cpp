#include "tandem/cli/draw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace tandem::cli {
namespace {

// Probabilities 0.5, 0.25, 0.125, 0.125, not in order.
const std::vector<float> kLogits = {std::log(0.125f), std::log(0.5f), std::log(0.125f), std::log(0.25f)};

std::vector<int> counts(const Drawing& how) {
  std::vector<int> found(kLogits.size());
  for (int i = 0; i < 1000; ++i)
    ++found[static_cast<size_t>(draw(kLogits, how, (static_cast<float>(i) + 0.5f) / 1000))];
  return found;
}

TEST(Draw, TakesTheMostLikelyAtTemperatureZero) { EXPECT_EQ(draw(kLogits, {.temperature = 0}, 0.99f), 1); }

TEST(Draw, FollowsTheProbabilities) {
  EXPECT_EQ(counts({.temperature = 1}), (std::vector<int>{125, 500, 125, 250}));
}

TEST(Draw, SharpensWithALowTemperature) {
  // 0.5 doubles the logits: 1/64, 1/4, 1/64, 1/16 of 22/64.
  EXPECT_EQ(counts({.temperature = 0.5}), (std::vector<int>{45, 728, 45, 182}));
}

TEST(Draw, TopKLeavesTheLikeliestInTheirProportion) {
  EXPECT_EQ(counts({.temperature = 1, .top_k = 2}), (std::vector<int>{0, 667, 0, 333}));
  EXPECT_EQ(counts({.temperature = 1, .top_k = 9}), counts({.temperature = 1, .top_k = 4}));
  EXPECT_EQ(counts({.temperature = 1, .top_k = 3})[0], 143) << "of equal ones the first";
}

TEST(Draw, TopPLeavesTheFewestThatReachIt) {
  EXPECT_EQ(counts({.temperature = 1, .top_p = 0.5}), (std::vector<int>{0, 1000, 0, 0}));
  EXPECT_EQ(counts({.temperature = 1, .top_p = 0.51}), (std::vector<int>{0, 667, 0, 333}));
  EXPECT_EQ(counts({.temperature = 1, .top_p = 0.01}), (std::vector<int>{0, 1000, 0, 0}));
}

TEST(Draw, NeverLeavesTheVocabulary) {
  EXPECT_LT(draw(kLogits, {.temperature = 1}, std::nextafter(1.0f, 0.0f)), 4);
  EXPECT_EQ(draw(kLogits, {.temperature = 1}, 0.0f), 0);
}

}  // namespace
}  // namespace tandem::cli
