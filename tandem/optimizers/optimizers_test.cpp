#include "tandem/optimizers/optimizers.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Optimizers, ShareTheKeysOfHyperParameters) {
  std::vector<std::string_view> keys;
  for (const HyperParam& param : kHyperKeys) keys.push_back(param.key);
  EXPECT_EQ(keys, (std::vector<std::string_view>{"train.beta1", "train.beta2", "train.eps", "train.momentum",
                                                 "train.trust", "train.beta2_decay", "train.update_clip"}));
  EXPECT_EQ(own_hyper(OptimizerKind::Lion, "train.beta2"), 1);
  EXPECT_EQ(own_hyper(OptimizerKind::Lion, "train.eps"), -1);
}

TEST(Optimizers, TakeNoMoreSlotsThanTheyRead) {
  EXPECT_EQ(num_hyper_slots(OptimizerKind::AdamW), 10);
  EXPECT_EQ(num_hyper_slots(OptimizerKind::Sgd), 8);
  EXPECT_EQ(num_hyper_slots(OptimizerKind::Lion), 9);
  EXPECT_EQ(num_hyper_slots(OptimizerKind::Muon), 11);
  EXPECT_EQ(num_hyper_slots(OptimizerKind::Lars), 10);
  EXPECT_EQ(num_hyper_slots(OptimizerKind::Adafactor), 10);
}

TEST(Optimizers, DecayMatricesOnly) {
  for (const OptimizerEntry& entry : kOptimizers) {
    EXPECT_FALSE(entry.decays_rank(1)) << entry.name;
    EXPECT_TRUE(entry.decays_rank(2)) << entry.name;
    EXPECT_TRUE(entry.decays_rank(4)) << entry.name;
  }
}

TEST(OptimizerStep, ClipsUnscalesAndSkips) {
  const float hyper[] = {0.5f, 0.25f, 1, 0.125f, 2, 0, 0, 0.9f, 0.99f};
  const double large[2] = {4, 1}, small[2] = {2, 1}, bad[2] = {1, 0};
  EXPECT_NEAR(optimizer_step<Lion>(hyper, large).grad_factor, 0.125 / 2, 1e-7);
  EXPECT_EQ(optimizer_step<Lion>(hyper, small).grad_factor, 0.125f);
  EXPECT_EQ(optimizer_step<Lion>(hyper, small).keep, 0.875f);
  EXPECT_FALSE(optimizer_step<Lion>(hyper, large).skip);
  EXPECT_TRUE(optimizer_step<Lion>(hyper, bad).skip);
}

TEST(OptimizerStep, ClipsByValueWhereAsked) {
  float hyper[] = {0.5f, 0.25f, 1, 1, 0, 0, 0, 0.9f, 0.99f};
  const double norm[2] = {4, 1};
  EXPECT_EQ(optimizer_step<Lion>(hyper, norm).largest, kNeverClipped);
  hyper[kHyperClipValue] = 0.125f;
  EXPECT_EQ(op_largest(optimizer_step<Lion>(hyper, norm)), 0.125f);
}

TEST(Lamb, MovesAMatrixByAShareOfItsNorm) {
  EXPECT_EQ(Lamb::trust({}, 0, 9, 4), 1.5);
  EXPECT_EQ(Lamb::trust({}, 0, 0, 4), 1);
  EXPECT_EQ(Lamb::trust({}, 0, 9, 0), 1);
}

TEST(Lars, ScalesAGradientToAShareOfTheWeightsNorm) {
  const Lars::Scalars own{.momentum = 0, .coefficient = 0.5f, .eps = 0};
  EXPECT_EQ(Lars::trust(own, 0.25, 16, 4), 0.5 * 4 / (2 + 0.25 * 4));
  EXPECT_EQ(Lars::trust(own, 0.25, 16, 0), 1);
  EXPECT_EQ(Lars::trust(own, 0.25, 0, 4), 1);
}

TEST(Adafactor, MovesByAShareOfTheWeightsSizeAndNoFurther) {
  const float hyper[] = {0.5f, 0, 16, 1, 0, 0, 0.5f, -0.8f, 0.125f, 2};
  const Adafactor::Scalars own = Adafactor::scalars(hyper + kHyperOwn, 0.5, 16);
  EXPECT_EQ(own.rho, 0.25f);  // 1 / sqrt(16)
  EXPECT_EQ(own.share, 0.5f);
  EXPECT_EQ(Adafactor::scalars(hyper + kHyperOwn, 0.125, 16).rho, 0.125f);
  EXPECT_EQ(Adafactor::trust(own, 0, 9, 4), 0.25 * 3);
  EXPECT_EQ(Adafactor::trust(own, 0, 9, 64), 0.25 * 3 / 4);  // rms 8, clipped to 2
  EXPECT_EQ(Adafactor::trust(own, 0, 0, 4), 0.25 * 0.125);
}

TEST(Adafactor, OfAVectorKnowsEverySquareOfAMatrixRowsAndColumns) {
  EXPECT_DOUBLE_EQ(Adafactor::root_of(4), 0.5);
  EXPECT_DOUBLE_EQ(Adafactor::root_of(4, 9, 1), 1.0 / 6);
  EXPECT_DOUBLE_EQ(Adafactor::root_of(0), 0x1p23);
  EXPECT_DOUBLE_EQ(Adafactor::root_of(1, 0x1p-23, 0), 1);
}

// The sequences as published: y = (1 - beta1) z + beta1 x, a step of z with the gradient at y, x the average.
TEST(ScheduleFree, AveragesAsPublished) {
  const double own[] = {0.75, 0, 1e-8};  // beta2 0: steps by the gradient's sign
  double x = 2, z = 2, lead = 0, v = 0, kept = x;
  const double gradients[] = {1, -3, 0.5}, averages[] = {1, 0.5, 0.25};
  for (int i = 0; i < 3; ++i) {
    const ExactStep step{.lr = 0.125, .decay = 0.5, .count = i + 1.0, .own = own, .average = averages[i]};
    const double y = 0.25 * z + 0.75 * x;
    EXPECT_NEAR(ScheduleFree::shown(step, kept, lead), y, 1e-7);
    z -= 0.125 * (std::copysign(1.0, gradients[i]) + 0.5 * y);
    x = (1 - averages[i]) * x + averages[i] * z;
    kept = ScheduleFree::update(step, kept, gradients[i], lead, v);
    EXPECT_NEAR(kept, x, 1e-7);
    EXPECT_NEAR(kept + lead, z, 1e-7);
  }
}

TEST(Optimizers, LeaveWhatIsNoMatrixOfABlockToTheOneBeside) {
  EXPECT_EQ(rule_for(OptimizerKind::Muon, true), OptimizerKind::Muon);
  EXPECT_EQ(rule_for(OptimizerKind::Muon, false), OptimizerKind::AdamW);
  EXPECT_EQ(rule_for(OptimizerKind::Lion, false), OptimizerKind::Lion);
}

TEST(Muon, ScalesStepsByTheShape) {
  EXPECT_EQ(Muon::scale(MuonScale::Original, 64, 16), 2);
  EXPECT_EQ(Muon::scale(MuonScale::Original, 16, 64), 1);
  EXPECT_DOUBLE_EQ(Muon::scale(MuonScale::MatchAdamW, 16, 64), 1.6);
}

TEST(Muon, LooksAheadAsNesterov) {
  const double own[] = {0, 0, 0, 0.75};
  double m = 4;
  EXPECT_EQ(Muon::direction(own, -4, m), 0.5);  // 0.75 * 2 - 1
  EXPECT_EQ(m, 2);
}

TEST(Lion, MovesEveryWeightByTheLearningRateOrNotAtAll) {
  const double own[] = {0.5, 0.75};
  double m = 4;
  EXPECT_EQ(Lion::update({.lr = 0.125, .decay = 0, .count = 1, .own = own}, 3, -2, m), 2.875);  // c = 2 - 1
  EXPECT_EQ(m, 2.5);                                                                            // 3 - 0.5
  EXPECT_EQ(Lion::update({.lr = 0.125, .decay = 0.5, .count = 2, .own = own}, 4, -2.5, m), 3.75);  // c = 0
  EXPECT_EQ(m, 1.25);
  EXPECT_EQ(Lion::update({.lr = 0.125, .decay = 0, .count = 3, .own = own}, 1, -2, m), 1.125);
}

}  // namespace
}  // namespace tandem
