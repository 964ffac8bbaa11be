#include "tandem/config/batch_ramp.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TrainConfig ramp() {
  TrainConfig train;
  train.batch = 32;
  train.batch_ramp = {{10, 8}, {15, 16}};
  return train;
}

TEST(BatchRamp, TakesEachBatchUpToItsStep) {
  const TrainConfig train = ramp();
  EXPECT_EQ(batch_of_step(train, 1), 8);
  EXPECT_EQ(batch_of_step(train, 10), 8);
  EXPECT_EQ(batch_of_step(train, 11), 16);
  EXPECT_EQ(batch_of_step(train, 15), 16);
  EXPECT_EQ(batch_of_step(train, 16), 32);
  EXPECT_EQ(batch_of_step(TrainConfig(), 1), TrainConfig().batch);
}

TEST(BatchRamp, FindsTheStepsForSoManySamples) {
  const TrainConfig train = ramp();
  int64_t samples = 0;
  for (int64_t step = 0; step <= 40; ++step) {
    samples += step == 0 ? 0 : batch_of_step(train, step);
    EXPECT_EQ(steps_for_samples(train, samples), step) << step;
    EXPECT_EQ(steps_for_samples(train, samples + 1), step + 1);
  }
}

}  // namespace
}  // namespace tandem
