#include "tandem/train/loss_scaler.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tandem {
namespace {

TrainConfig config() {
  TrainConfig c;
  c.loss_scale = 1024;
  c.loss_scale_window = 3;
  return c;
}

TEST(LossScaler, BacksOffOnOverflowAndGrowsAfterAWindowOfGoodSteps) {
  LossScaler scaler(config(), Precision::Fp16);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 512);
  for (int i = 0; i < 3; ++i) scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1024);
}

TEST(LossScaler, AnOverflowStartsTheWindowAnew) {
  LossScaler scaler(config(), Precision::Fp16);
  scaler.update(true);
  scaler.update(true);
  scaler.update(false);
  scaler.update(true);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 512);
}

TEST(LossScaler, ContinuesFromItsSavedState) {
  LossScaler scaler(config(), Precision::Fp16);
  scaler.update(true);
  scaler.update(true);
  LossScaler resumed(config(), Precision::Fp16);
  resumed.restore(scaler.state());
  resumed.update(true);
  EXPECT_EQ(resumed.scale(), 2048);
}

TEST(LossScaler, StartsItsOwnScaleWhenARunWithoutScalingIsResumed) {
  LossScaler resumed(config(), Precision::Fp16);
  resumed.restore(LossScaler(config(), Precision::Fp32).state());
  EXPECT_EQ(resumed.scale(), 1024);
}

TEST(LossScaler, IsOneForPrecisionsThatNeedNoScaling) {
  LossScaler scaler(config(), Precision::Bf16);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 1.0);
}

TEST(LossScaler, NeverFallsBelowOne) {
  LossScaler scaler(config(), Precision::Fp16);
  for (int i = 0; i < 100; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 1.0);
}

}  // namespace
}  // namespace tandem
