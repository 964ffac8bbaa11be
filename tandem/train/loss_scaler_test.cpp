#include "tandem/train/loss_scaler.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tandem {
namespace {

TrainConfig config() {
  TrainConfig c;
  c.loss_scale = 1024;
  return c;
}

TEST(LossScaler, StartsWhereTheConfigSays) {
  LossScaler scaler(config(), Precision::Fp16);
  EXPECT_TRUE(scaler.active());
  EXPECT_EQ(scaler.values(), (LossScaler::Values{1024, 0}));
}

TEST(LossScaler, ContinuesFromItsSavedState) {
  LossScaler scaler(config(), Precision::Fp16), resumed(config(), Precision::Fp16);
  scaler.values() = {512, 2};
  resumed.restore(scaler.state());
  EXPECT_EQ(resumed.values(), scaler.values());
}

TEST(LossScaler, ReadsWhatCheckpointsHaveAlwaysHeld) {
  LossScaler resumed(config(), Precision::Fp16);
  resumed.restore(nlohmann::json::parse(R"({"scale": 32768.0, "good_steps": 1999})"));
  EXPECT_EQ(resumed.values(), (LossScaler::Values{32768, 1999}));
  EXPECT_EQ(resumed.state().dump(), R"({"good_steps":1999,"scale":32768.0})");
}

TEST(LossScaler, StartsItsOwnScaleWhenARunWithoutScalingIsResumed) {
  LossScaler resumed(config(), Precision::Fp16);
  resumed.restore(LossScaler(config(), Precision::Fp32).state());
  EXPECT_EQ(resumed.scale(), 1024);
}

TEST(LossScaler, IsOneForPrecisionsThatNeedNoScaling) {
  LossScaler scaler(config(), Precision::Bf16);
  EXPECT_FALSE(scaler.active());
  scaler.restore(LossScaler(config(), Precision::Fp16).state());
  EXPECT_EQ(scaler.scale(), 1.0);
}

}  // namespace
}  // namespace tandem
