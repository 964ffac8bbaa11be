#include "tandem/train/saving/budget.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tandem/base/error.h"
#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

// A dollar a second.
TrainConfig train_of(double budget, double price = 3600) {
  TrainConfig train;
  train.budget.usd = budget;
  train.price.usd = price;
  return train;
}

TEST(Budget, EndsWhileThereIsMoneyForAnotherStepAndASave) {
  const TemporaryDirectory folder;
  Budget budget(train_of(20), folder.path(), 100, true);
  double now = 100;
  int steps = 0;
  while (!budget.is_last(now, 2.0)) {
    now += 1;
    ++steps;
  }
  now += 1 + 1 + 2;  // the last step, one that nobody foresaw, the save
  EXPECT_GT(steps, 10);
  EXPECT_LE(budget.spent_usd(now), 20);
}

TEST(Budget, CountsEarlierProcesses) {
  const TemporaryDirectory folder;
  {
    Budget first(train_of(20), folder.path(), 0, true);
    EXPECT_FALSE(first.is_last(1, std::nullopt));
    first.note(12, true);
  }
  const Budget second(train_of(20), folder.path(), 1000, true);
  EXPECT_DOUBLE_EQ(second.spent_usd(1003), 15);
  EXPECT_EQ(second.text(1003), "15.00USD spent, 5.00USD to go");
  EXPECT_TRUE(Budget(train_of(12.2), folder.path(), 1000, true).is_over(1000));
  EXPECT_DOUBLE_EQ(Budget(train_of(20), folder.path(), 0, false).spent_usd(3), 3);  // starts over
}

TEST(Budget, APriceAloneIsOnlyShown) {
  const TemporaryDirectory folder;
  Budget budget(train_of(0), folder.path(), 0, true);
  EXPECT_FALSE(budget.is_last(1e9, std::nullopt));
  EXPECT_EQ(budget.text(2), "2.00USD spent");
  EXPECT_EQ(Budget(train_of(0, 0), folder.path(), 0, true).text(2), "");
}

TEST(Budget, ADamagedFileIsNoReasonToSpendMore) {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() / "spent.json") << "{\"seconds\": ";
  EXPECT_THROW(Budget(train_of(20), folder.path(), 0, true), DataError);
}

}  // namespace
}  // namespace tandem
