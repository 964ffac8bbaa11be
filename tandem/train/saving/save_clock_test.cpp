#include "tandem/train/saving/save_clock.h"
#include "tandem/train/saving/save_interval.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

SaveReport report(double snapshot_s, double write_s) {
  SaveReport report;
  report.snapshot_s = snapshot_s;
  report.write_s = write_s;
  return report;
}

CheckpointConfig automatic(double mtbf_hours) {
  CheckpointConfig config;
  config.every.automatic = true;
  config.mtbf = mtbf_hours;
  return config;
}

TEST(BestSaveInterval, IsDalys) {
  // 10 s a save, 4 h between failures: Young 537 s, and Daly's terms beyond.
  EXPECT_NEAR(daly_interval_s(10, 4 * 3600), 537 * (1 + 0.0186 / 3 + 3.86e-5) - 10, 0.5);
  EXPECT_EQ(daly_interval_s(100, 40), 40) << "a save longer than the machine lives";
}

TEST(BestSaveInterval, CostsLessThanItsNeighbours) {
  const auto cost = [](double interval) { return 10 / interval + interval / (2 * 14400); };
  const double best = daly_interval_s(10, 14400);
  EXPECT_LT(cost(best), cost(best * 0.8));
  EXPECT_LT(cost(best), cost(best * 1.25));
}

TEST(SaveClock, KnowsNoTimeWhereStepsAreCounted) {
  const SaveClock clock({}, 0);
  EXPECT_FALSE(clock.is_due(1e9));
}

TEST(SaveClock, CountsMinutesFromTheLastSave) {
  CheckpointConfig config;
  config.minutes = 2;
  SaveClock clock(config, 1000);
  EXPECT_FALSE(clock.is_due(1119));
  EXPECT_TRUE(clock.is_due(1120));
  clock.begin_save(1120);
  EXPECT_FALSE(clock.is_due(1239));
  EXPECT_TRUE(clock.is_due(1240));
}

TEST(SaveClock, LearnsWhatASaveCosts) {
  SaveClock clock(automatic(4), 0);
  EXPECT_TRUE(clock.is_due(60)) << "the first is soon";
  clock.begin_save(60);
  clock.end_save(report(10, 20));
  EXPECT_NEAR(clock.interval_s(60), daly_interval_s(10, 4 * 3600 + 60), 1e-9);
  clock.begin_save(700);
  clock.end_save(report(0.001, 300));
  EXPECT_EQ(clock.interval_s(700), 300) << "not before the last one is written";
}

TEST(SaveClock, LearnsHowOftenTheRunIsInterrupted) {
  SaveClock before(automatic(24), 0);
  EXPECT_EQ(before.mtbf_s(3600), 25 * 3600);
  SaveClock after(automatic(24), 100);
  after.restore(before.state(3600));
  EXPECT_EQ(after.mtbf_s(100 + 3600), (24 + 2) * 3600 / 2.0);
  SaveClock third(automatic(24), 0);
  third.restore(after.state(100 + 3600));
  EXPECT_EQ(third.mtbf_s(0), (24 + 2) * 3600 / 3.0);
}

TEST(SaveClock, SaysHowLongASaveWouldTake) {
  SaveClock clock({}, 0);
  EXPECT_FALSE(clock.time_of_save_s());
  clock.begin_save(0);
  clock.end_save(report(1, 4));
  clock.begin_save(10);
  clock.end_save(report(1, 2));
  EXPECT_EQ(*clock.time_of_save_s(), 5) << "as the slowest";
  clock.begin_save(20);
  EXPECT_EQ(*clock.time_of_save_s(), 10) << "one under way ends first";
}

}  // namespace
}  // namespace tandem
