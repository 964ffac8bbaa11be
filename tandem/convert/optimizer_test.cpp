#include "tandem/convert/optimizer.h"

#include <gtest/gtest.h>

namespace tandem::convert {
namespace {

TEST(Optimizer, IsFoundByItsNamesElsewhere) {
  for (const char* name : {"AdamW", "Adam", "FusedAdam", "adamw_torch", "adamw_torch_fused",
                           "adamw_apex_fused", "paged_adamw_32bit"})
    EXPECT_EQ(OptimizerKind::AdamW, find_optimizer(name)) << name;
  EXPECT_EQ(OptimizerKind::Sgd, find_optimizer("SGD"));
  EXPECT_EQ(OptimizerKind::Lion, find_optimizer("Lion"));
  EXPECT_EQ(OptimizerKind::Lion, find_optimizer("lion_32bit"));
  EXPECT_EQ(OptimizerKind::Lamb, find_optimizer("FusedLamb"));
  EXPECT_EQ(OptimizerKind::Adafactor, find_optimizer("adafactor"));
  EXPECT_EQ(OptimizerKind::ScheduleFree, find_optimizer("schedule_free_adamw"));
}

TEST(Optimizer, IsNotFoundInTheNameOfAnother) {
  for (const char* name : {"OneBitLamb", "OneBitAdam", "galore_adamw", "stable_adamw", ""})
    EXPECT_EQ(std::nullopt, find_optimizer(name)) << name;
}

TEST(Optimizer, AnotherIsToldAndAdamwStandsIn) {
  Draft draft;
  EXPECT_EQ(OptimizerKind::AdamW, set_optimizer("optimizer.type", "OneBitLamb", draft));
  EXPECT_EQ("adamw", *draft.get("train.optimizer"));
  ASSERT_EQ(1u, draft.findings().size());
  EXPECT_EQ(FindingKind::Lost, draft.findings()[0].kind);
}

TEST(Optimizer, KeepsStatesIn8BitsWhereItsNameSaysSo) {
  Draft draft;
  EXPECT_EQ(OptimizerKind::Lion, set_optimizer("optim", "paged_lion_8bit", draft));
  EXPECT_EQ("int8", *draft.get("train.optimizer_state"));
  EXPECT_TRUE(draft.findings().empty());
  set_optimizer("optimizer.type", "AdamW", draft);
  EXPECT_FALSE(draft.has("train.optimizer_state"));
}

TEST(Optimizer, TakesOnlyNumbersItHas) {
  Draft draft;
  set_hyper(OptimizerKind::Sgd, "train.beta1", 0.9, draft);
  set_hyper(OptimizerKind::Sgd, "train.momentum", 0.5, draft);
  EXPECT_FALSE(draft.has("train.beta1"));
  EXPECT_EQ(0.5, *draft.get("train.momentum"));
}

}  // namespace
}  // namespace tandem::convert
