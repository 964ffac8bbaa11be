#include "tandem/data/stories.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tandem/data/story_grammar.h"

namespace tandem {
namespace {

std::string text_of(const Stories& stories, int64_t index) {
  const auto context = static_cast<size_t>(stories.spec().context);
  std::vector<int32_t> tokens(context), targets(context);
  stories.fill(index, {.tokens = tokens.data(), .targets = targets.data()});
  std::string text;
  for (const int32_t token : tokens) text += static_cast<char>(token);
  for (size_t t = 0; t + 1 < context; ++t) EXPECT_EQ(targets[t], tokens[t + 1]);
  return text + static_cast<char>(targets.back());
}

TEST(Stories, WritesWhatItsAutomatonAccepts) {
  const Stories stories(512, Split::Train, 1);
  for (int64_t i = 0; i < 500; ++i) {
    EXPECT_TRUE(std::isfinite(story_automaton().log_probability(text_of(stories, i)))) << text_of(stories, i);
  }
}

TEST(Stories, MeanLossOfTheTrueModelIsTheFloor) {
  constexpr int64_t kContext = 200, kSamples = 4000;
  const Stories stories(kContext, Split::Train, 3);
  double sum = 0.0, sum_of_squares = 0.0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const double loss = -story_automaton().log_probability(text_of(stories, i), 1) / kContext;
    sum += loss;
    sum_of_squares += loss * loss;
  }
  const double mean = sum / kSamples;
  const double error = std::sqrt((sum_of_squares / kSamples - mean * mean) / kSamples);
  EXPECT_LT(error, 0.001);  // the interval is tight enough to mean something
  EXPECT_NEAR(mean, *stories.loss_floor(), 4.0 * error);
}

// Of separate stories the first byte of each is nobody's target, and of no window's floor.
TEST(Stories, ThatAreSeparateHaveAFloorOfTheirOwn) {
  constexpr int64_t kContext = 900, kSamples = 2000;
  const Stories stories(kContext, Split::Train, 3, /*separate_documents=*/true),
      joined(kContext, Split::Train, 3);
  std::vector<int32_t> tokens(kContext), targets(kContext), segments(kContext), positions(kContext);
  double loss = 0, sum_of_squares = 0, counted = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const std::string text = text_of(joined, i);
    stories.fill(i, {.tokens = tokens.data(),
                     .targets = targets.data(),
                     .segments = segments.data(),
                     .positions = positions.data()});
    double sum = 0;
    int64_t valid = 0;
    int32_t story = 0;
    for (size_t t = 0, begin = 0; t < kContext; ++t) {
      ASSERT_EQ(segments[t], story);
      story += text[t] == '\n' ? 1 : 0;
      ASSERT_EQ(positions[t], static_cast<int32_t>(t - begin));
      ASSERT_EQ(targets[t], text[t] == '\n' ? kNoTarget : text[t + 1]);
      valid += targets[t] == kNoTarget ? 0 : 1;
      if (text[t] != '\n' && t + 1 < kContext) continue;
      const size_t end = text[t] == '\n' ? t + 1 : t + 2;  // the last story has a target behind it
      sum -= story_automaton().log_probability(text.substr(begin, end - begin), 1);
      begin = t + 1;
    }
    ASSERT_EQ(stories.num_valid_targets(i), valid);
    loss += sum;
    sum_of_squares += sum * sum;
    counted += static_cast<double>(valid);
  }
  const double mean = loss / kSamples;
  const double error = std::sqrt((sum_of_squares / kSamples - mean * mean) / kSamples) * kSamples / counted;
  EXPECT_LT(error, 0.001);
  EXPECT_NEAR(loss / counted, *stories.loss_floor(), 4 * error);
  EXPECT_LT(*stories.loss_floor() + 8 * error, *joined.loss_floor());
}

TEST(Stories, FloorDependsOnTheContextAndStaysInRange) {
  for (const int64_t context : {64, 256, 1024}) {
    const double floor = *Stories(context, Split::Eval, 1).loss_floor();
    EXPECT_GT(floor, 0.25) << context;
    EXPECT_LT(floor, 0.45) << context;
  }
}

TEST(Stories, RememberTheirHeroPlaceAndFriend) {
  const Stories stories(400, Split::Train, 5);
  for (int64_t i = 0; i < 200; ++i) {
    const std::string window = text_of(stories, i);
    const size_t end = window.find('\n');
    if (end == std::string::npos) continue;
    const std::string story = window.substr(0, end);
    int heroes = 0, friends = 0, places = 0;
    for (const char* name : {"Anna", "Ben", "Clara", "Finn", "Lily", "Tom"})
      heroes += story.find(name) != story.npos;
    for (const char* name : {" cat", " dog", " fox", " hen", " rabbit"})
      friends += story.find(name) != story.npos;
    for (const char* name : {"the park", "the farm", "the lake", "the hill", "the beach"}) {
      places += story.find(name) != story.npos;
    }
    EXPECT_EQ(heroes, 1) << story;
    EXPECT_EQ(friends, 1) << story;
    EXPECT_EQ(places, 1) << story;
  }
}

TEST(Stories, AreAPureFunctionOfSeedSplitAndIndex) {
  const Stories a(100, Split::Train, 1), again(100, Split::Train, 1);
  const Stories other_seed(100, Split::Train, 2), other_split(100, Split::Eval, 1);
  std::set<std::string> texts;
  for (int64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(text_of(a, i), text_of(again, i));
    texts.insert({text_of(a, i), text_of(other_seed, i), text_of(other_split, i)});
  }
  EXPECT_EQ(texts.size(), 150u);
}

TEST(Stories, BeginAtTheStartOfAStoryAndGoOnToTheNext) {
  const Stories stories(2000, Split::Train, 1);
  const std::string window = text_of(stories, 0);
  EXPECT_GE(std::count(window.begin(), window.end(), '\n'), 3);
  for (size_t at = window.find('\n'); at != std::string::npos && at + 1 < window.size();
       at = window.find('\n', at + 1)) {
    EXPECT_TRUE(std::isupper(static_cast<unsigned char>(window[at + 1])));
  }
}

}  // namespace
}  // namespace tandem
