#include "tandem/train/divergence.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

StepResult step(double loss, bool applied, double loss_scale = 1) {
  StepResult result;
  result.loss = loss;
  result.applied = applied;
  result.loss_scale = loss_scale;
  return result;
}

TEST(Divergence, AStepThatIsSkippedToLowerTheLossScaleIsNone) {
  Divergence watch;
  for (double scale = 65536; scale > 1; scale /= 2) watch.add_step(step(2.5, false, scale));
  EXPECT_EQ(watch.lost_steps(), 0);
  watch.add_step(step(2.5, false, 1));
  watch.add_step(step(2.5, false, 0.5));
  EXPECT_EQ(watch.lost_steps(), 2);
  watch.add_step(step(2.5, true, 0.5));
  EXPECT_EQ(watch.lost_steps(), 0);
}

TEST(Divergence, AStepWithoutAFiniteLossIsLostWhateverTheLossScale) {
  Divergence watch;
  watch.add_step(step(kNaN, false, 65536));
  watch.add_step(step(std::numeric_limits<double>::infinity(), false, 32768));
  watch.add_step(step(kNaN, true, 1));
  EXPECT_EQ(watch.lost_steps(), 3);
}

TEST(Divergence, ACheckpointIsGoodOnceALaterLossIsFinite) {
  Divergence watch(10);
  EXPECT_EQ(watch.good(), 0);
  watch.add_step(step(2.5, true));
  EXPECT_EQ(watch.good(), 10);
  watch.add_save(11);
  watch.add_step(step(kNaN, false));
  EXPECT_EQ(watch.good(), 10);
  EXPECT_EQ(watch.saved(), 11);
}

}  // namespace
}  // namespace tandem
