#include "tandem/train/evaluation/eval_watch.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

TEST(EvalWatch, KnowsTheBest) {
  const TrainConfig config;
  EvalWatch watch(config);
  EXPECT_TRUE(watch.add(10, 3.0, 3.0));
  EXPECT_FALSE(watch.add(20, 3.0, 3.0));
  EXPECT_TRUE(watch.add(30, 4.0, 2.9));  // of the set that checkpoint.best names
  EXPECT_EQ(watch.kept()->step, 30);
  EXPECT_EQ(watch.best()->step, 10);
  EXPECT_FALSE(watch.add(40, 4.0, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_FALSE(watch.is_out_of_patience());  // of which there is no end by default
}

TEST(EvalWatch, LosesPatienceAfterEvaluationsInVain) {
  TrainConfig config;
  config.patience = 2;
  config.min_delta = 0.1;
  EvalWatch watch(config);
  for (const auto& [loss, out] :
       {std::pair(3.0, false), {2.95, false}, {2.85, false}, {2.8, false}, {2.76, true}}) {
    watch.add(1, loss, loss);
    EXPECT_EQ(watch.is_out_of_patience(), out) << loss;
  }
  EXPECT_EQ(watch.best()->loss, 2.85);
}

TEST(EvalWatch, GoesOnWhereItWas) {
  TrainConfig config;
  config.patience = 3;
  EvalWatch watch(config), resumed(config), fresh(config);
  watch.add(1, 0.1 + 0.2, 0.3);
  watch.add(2, 1, 1);
  const auto state = nlohmann::json::parse(watch.state().dump());
  resumed.restore(state);
  EXPECT_EQ(resumed.state(), watch.state());
  EXPECT_EQ(resumed.best()->loss, 0.1 + 0.2);
  EXPECT_EQ(resumed.in_vain(), 1);
  fresh.restore(nullptr);
  EXPECT_FALSE(fresh.best());
}

}  // namespace
}  // namespace tandem
