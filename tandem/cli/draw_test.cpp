#include "tandem/cli/draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
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

// All sorted, then as many as asked for, then by token: what draw() does without sorting all.
int32_t plain_draw(const std::vector<float>& logits, const Drawing& how, float uniform) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](int32_t token) { return static_cast<double>(logits[static_cast<size_t>(token)]); };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  const double largest = logit(order[0]);
  const auto weight = [&](int32_t token) { return std::exp((logit(token) - largest) / how.temperature); };
  if (how.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(how.top_k)));
  double total = 0, sum = 0;
  for (int32_t token : order) total += weight(token);
  for (size_t i = 0; i < order.size(); ++i) {
    sum += weight(order[i]);
    if (how.top_p < 1 && sum >= how.top_p * total) order.resize(i + 1);
  }
  std::sort(order.begin(), order.end());
  double left = 0;
  for (int32_t token : order) left += uniform * weight(token);
  for (int32_t token : order) {
    left -= weight(token);
    if (left < 0) return token;
  }
  return order.back();
}

TEST(Draw, OfAManyTokensIsThatOfASortedList) {
  std::vector<float> logits(9001);
  for (size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>((i * i * 31 + 7 * i) % 1009) * 0.02f;  // many equal ones
  for (const Drawing& how :
       {Drawing{.temperature = 1}, Drawing{.temperature = 0.1}, Drawing{.temperature = 9},
        Drawing{.temperature = 1, .top_k = 40}, Drawing{.temperature = 1, .top_p = 0.9},
        Drawing{.temperature = 9, .top_p = 0.95}, Drawing{.temperature = 2, .top_k = 3000, .top_p = 0.7}}) {
    for (int i = 0; i < 50; ++i) {
      const float uniform = (static_cast<float>(i) + 0.37f) / 50;
      ASSERT_EQ(draw(logits, how, uniform), plain_draw(logits, how, uniform))
          << how.temperature << " " << how.top_k << " " << how.top_p << " " << uniform;
    }
  }
}

TEST(Draw, TellsWhereLogitsAreNoNumbers) {
  const float nan = std::nanf("");
  for (const double temperature : {0.0, 1.0}) {
    EXPECT_EQ(draw(std::vector<float>(40, nan), {.temperature = temperature}, 0.5f), kNoToken);
    EXPECT_EQ(draw(std::vector<float>(3, nan), {.temperature = temperature}, 0.5f), kNoToken);
  }
}

}  // namespace
}  // namespace tandem::cli
