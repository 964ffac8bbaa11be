#include "tandem/train/lr_schedule.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TrainConfig config(ScheduleKind kind) {
  TrainConfig c;
  c.steps = 110;
  c.warmup = 10;
  c.lr = 1.0;
  c.min_lr = 0.1;
  c.schedule = kind;
  return c;
}

TEST(LrSchedule, WarmsUpLinearlyAndReachesTheFullRateAtTheEndOfTheWarmUp) {
  for (ScheduleKind kind : {ScheduleKind::Cosine, ScheduleKind::Linear, ScheduleKind::Constant}) {
    EXPECT_DOUBLE_EQ(learning_rate(config(kind), 1), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate(config(kind), 5), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate(config(kind), 10), 1.0);
  }
}

TEST(LrSchedule, EndsAtTheFloorAndIsHalfWayInTheMiddle) {
  EXPECT_NEAR(learning_rate(config(ScheduleKind::Cosine), 60), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(config(ScheduleKind::Cosine), 110), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate(config(ScheduleKind::Linear), 35), 0.775, 1e-12);
  EXPECT_NEAR(learning_rate(config(ScheduleKind::Linear), 110), 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(config(ScheduleKind::Constant), 110), 1.0);
}

TEST(LrSchedule, StaysAtTheFloorPastTheLastStep) {
  EXPECT_NEAR(learning_rate(config(ScheduleKind::Cosine), 500), 0.1, 1e-12);
}

}  // namespace
}  // namespace tandem
