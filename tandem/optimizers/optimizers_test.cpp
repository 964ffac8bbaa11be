#include "tandem/optimizers/optimizers.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Optimizers, ShareTheKeysOfHyperParameters) {
  std::vector<std::string_view> keys;
  for (const HyperParam& param : kHyperKeys) keys.push_back(param.key);
  EXPECT_EQ(keys,
            (std::vector<std::string_view>{"train.beta1", "train.beta2", "train.eps", "train.momentum"}));
  EXPECT_EQ(own_hyper(OptimizerKind::Lion, "train.beta2"), 1);
  EXPECT_EQ(own_hyper(OptimizerKind::Lion, "train.eps"), -1);
}

TEST(Optimizers, TakeNoMoreSlotsThanTheyRead) {
  EXPECT_EQ(num_hyper_slots(OptimizerKind::AdamW), 8);
  EXPECT_EQ(num_hyper_slots(OptimizerKind::Sgd), 6);
  EXPECT_EQ(num_hyper_slots(OptimizerKind::Lion), 7);
  EXPECT_EQ(num_hyper_slots(OptimizerKind::Muon), 9);
}

TEST(Optimizers, DecayMatricesOnly) {
  for (const OptimizerEntry& entry : kOptimizers) {
    EXPECT_FALSE(entry.decays_rank(1)) << entry.name;
    EXPECT_TRUE(entry.decays_rank(2)) << entry.name;
    EXPECT_TRUE(entry.decays_rank(4)) << entry.name;
  }
}

TEST(OptimizerStep, ClipsUnscalesAndSkips) {
  const float hyper[] = {0.5f, 0.25f, 1, 0.125f, 2, 0.9f, 0.99f};
  const double large[2] = {4, 1}, small[2] = {2, 1}, bad[2] = {1, 0};
  EXPECT_NEAR(optimizer_step<Lion>(hyper, large).grad_factor, 0.125 / 2, 1e-7);
  EXPECT_EQ(optimizer_step<Lion>(hyper, small).grad_factor, 0.125f);
  EXPECT_EQ(optimizer_step<Lion>(hyper, small).keep, 0.875f);
  EXPECT_FALSE(optimizer_step<Lion>(hyper, large).skip);
  EXPECT_TRUE(optimizer_step<Lion>(hyper, bad).skip);
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
