#include "tandem/plan/interruptions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace tandem::plan {
namespace {

constexpr Interruptions kGolden = {.save = 10, .mean = 4 * 3600, .restart = 600};

TEST(Interruptions, TheGoldenCase) {
  EXPECT_NEAR(young_interval(kGolden), 537, 0.5);
  const Overhead overhead = first_order(kGolden, young_interval(kGolden));
  EXPECT_NEAR(overhead.saves, 0.0186, 5e-5);
  EXPECT_NEAR(overhead.lost, 0.0186, 5e-5);
  EXPECT_NEAR(overhead.restarts, 0.0417, 5e-5);
  EXPECT_NEAR(overhead.total(), 0.079, 5e-4);
  EXPECT_NEAR(daly_interval(kGolden), 536.66 * (1 + std::sqrt(10 / 28800.0) / 3 + 10 / (18 * 14400.0)) - 10,
              0.1);
}

TEST(Interruptions, ANoticeSavesTheLostWork) {
  const Overhead with = first_order_with_notice(kGolden, 537), without = first_order(kGolden, 537);
  EXPECT_LT(with.lost, without.lost / 10);
  EXPECT_DOUBLE_EQ(with.restarts, without.restarts);
}

TEST(Interruptions, ASaveLongerThanTheMachinesLast) {
  EXPECT_DOUBLE_EQ(daly_interval({.save = 100, .mean = 40, .restart = 1}), 40);
}

// Work with interruptions at random times, which may come during saves and restarts.
double one_run(std::mt19937_64& random, const Interruptions& of, double work, double interval) {
  std::exponential_distribution<double> until(1 / of.mean);
  double wall = 0, done = 0, next = until(random);
  while (done < work) {
    const double segment = std::min(interval, work - done) + of.save;
    if (next >= segment) {
      next -= segment;
      wall += segment;
      done += segment - of.save;
      continue;
    }
    wall += next;
    next = until(random);
    while (next < of.restart) {  // interrupted while it restarts: from the start again
      wall += next;
      next = until(random);
    }
    wall += of.restart;
    next -= of.restart;
  }
  return wall;
}

TEST(Interruptions, DalysTimeIsThatOfAMonteCarloRun) {
  std::mt19937_64 random(1);
  for (const Interruptions& of : {kGolden, Interruptions{60, 2 * 3600, 900}, Interruptions{5, 3600, 120}}) {
    const double interval = daly_interval(of), work = 200 * 3600;
    double sum = 0;
    constexpr int kRuns = 300;
    for (int i = 0; i < kRuns; ++i) sum += one_run(random, of, work, interval);
    EXPECT_NEAR(expected_seconds(of, work, interval) / (sum / kRuns), 1, 0.03) << of.mean;
  }
}

}  // namespace
}  // namespace tandem::plan
