#include "tandem/train/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

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

// PyTorch's schedulers count from 0: what they call index i is our step i + 1. The closed forms are those of
// its documentation.
TEST(LrSchedule, OneCycleIsTorchsOneCycleLr) {
  TrainConfig c = config(ScheduleKind::OneCycle);
  c.steps = 100;
  c.warmup = 30;
  c.start_lr = 1.0 / 25;
  c.min_lr = 1.0 / 25 / 1e4;
  const double low = 0.04, end = 0.04e-4;
  const auto cosine = [](double from, double to, double share) {
    return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * share));
  };
  for (int index = 0; index < 100; ++index) {
    const double expected = index <= 29 ? cosine(low, 1, index / 29.0) : cosine(1, end, (index - 29) / 70.0);
    EXPECT_NEAR(learning_rate(c, index + 1), expected, 1e-12) << index;
  }
}

TEST(LrSchedule, StepIsTorchsStepLrAfterTheWarmUp) {
  TrainConfig c = config(ScheduleKind::Step);
  c.step_every = 30;
  c.step_factor = 0.5;
  EXPECT_DOUBLE_EQ(learning_rate(c, 5), 0.5);
  for (int index = 0; index < 100; ++index)
    EXPECT_DOUBLE_EQ(learning_rate(c, 11 + index), std::pow(0.5, index / 30)) << index;
}

TEST(LrSchedule, WsdIsStableThenFallsInItsShape) {
  TrainConfig c = config(ScheduleKind::Wsd);
  c.decay_steps = 20;
  for (DecayShape shape : {DecayShape::Linear, DecayShape::Cosine, DecayShape::Sqrt}) {
    c.decay_shape = shape;
    EXPECT_DOUBLE_EQ(learning_rate(c, 3), 0.3);
    for (int step = 10; step <= 90; ++step) EXPECT_DOUBLE_EQ(learning_rate(c, step), 1.0);
    EXPECT_NEAR(learning_rate(c, 110), 0.1, 1e-12);
    EXPECT_NEAR(learning_rate(c, 400), 0.1, 1e-12);
  }
  c.decay_shape = DecayShape::Linear;
  EXPECT_NEAR(learning_rate(c, 95), 1 - 0.9 * 0.25, 1e-12);
  c.decay_shape = DecayShape::Cosine;
  EXPECT_NEAR(learning_rate(c, 100), 0.55, 1e-12);
  c.decay_shape = DecayShape::Sqrt;
  EXPECT_NEAR(learning_rate(c, 95), 1 - 0.9 * 0.5, 1e-12);
}

TEST(LrSchedule, InverseSqrtFallsWithTheRootOfTheStep) {
  TrainConfig c = config(ScheduleKind::InverseSqrt);
  EXPECT_DOUBLE_EQ(learning_rate(c, 10), 1.0);
  EXPECT_NEAR(learning_rate(c, 40), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(c, 90), 1.0 / 3, 1e-12);
  c.warmup = 0;
  EXPECT_NEAR(learning_rate(c, 30000), 0.5, 1e-12);
}

TEST(LrSchedule, PointsAreJoinedByStraightLines) {
  TrainConfig c = config(ScheduleKind::Points);
  c.lr = 2;
  c.warmup = 0;
  c.points = {{0, 0}, {10, 1}, {20, 1}, {40, 0.5}};
  EXPECT_DOUBLE_EQ(learning_rate(c, 1), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(c, 10), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(c, 15), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(c, 30), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate(c, 40), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(c, 999), 1.0);
}

TEST(LrSchedule, WarmsUpFromWhereItIsToldTo) {
  TrainConfig c = config(ScheduleKind::Constant);
  c.start_lr = 0.5;
  EXPECT_DOUBLE_EQ(learning_rate(c, 5), 0.75);
}

TEST(LrSchedule, GrowsWithTheBatch) {
  TrainConfig c = config(ScheduleKind::Constant);
  c.batch = 256;
  c.lr_batch = 16;
  c.lr_scaling = LrScaling::Linear;
  EXPECT_DOUBLE_EQ(learning_rate(c, 110), 16.0);
  c.lr_scaling = LrScaling::Sqrt;
  EXPECT_DOUBLE_EQ(learning_rate(c, 110), 4.0);
}

}  // namespace
}  // namespace tandem
