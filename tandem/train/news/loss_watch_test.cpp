#include "tandem/train/news/loss_watch.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

using Kind = LossWatch::News::Kind;

// A loss that falls, with noise.
double usual(int64_t step) {
  return 2 + 3 * std::exp(-static_cast<double>(step) / 100) +
         0.05 * std::sin(static_cast<double>(step * step));
}

TEST(LossWatch, SaysNothingOfALossThatFallsWithNoise) {
  LossWatch watch;
  for (int64_t step = 1; step <= 5000; ++step) EXPECT_FALSE(watch.add(step, usual(step))) << step;
}

TEST(LossWatch, TellsTheStepOfASpikeOnce) {
  LossWatch watch;
  for (int64_t step = 1; step <= 1000; ++step) {
    const bool high = step >= 700 && step < 705;
    const auto news = watch.add(step, high ? 4 : usual(step));
    EXPECT_EQ(news.has_value(), step == 700) << step;
    if (news) {
      EXPECT_EQ(news->kind, Kind::Spike);
      EXPECT_NEAR(news->usual, 2, 0.1);
    }
  }
}

TEST(LossWatch, ASpikeThatStaysIsARunThatDiverges) {
  LossWatch watch;
  int64_t told = 0;
  for (int64_t step = 1; step <= 1000 && told == 0; ++step) {
    const auto news = watch.add(step, step >= 700 ? 8 : usual(step));
    if (news && news->kind == Kind::Diverging) {
      told = step;
      EXPECT_EQ(news->since, 700);
    }
  }
  EXPECT_EQ(told, 700 + LossWatch::kPatience);
}

TEST(LossWatch, LeavesOutWhatIsNotFinite) {
  LossWatch watch;
  for (int64_t step = 1; step <= 100; ++step)
    EXPECT_FALSE(watch.add(step, step % 3 == 0 ? std::nan("") : usual(step)));
}

}  // namespace
}  // namespace tandem
