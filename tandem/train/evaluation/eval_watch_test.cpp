#include "tandem/train/evaluation/eval_watch.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace tandem {
namespace {

TEST(EvalWatch, KnowsTheBest) {
  const TrainConfig config;
  EvalWatch watch(config, "eval_loss/a");
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
  EvalWatch watch(config, "eval_loss"), resumed(config, "eval_loss"), fresh(config, "eval_loss");
  watch.add(1, 0.1 + 0.2, 0.3);
  watch.add(2, 1, 1);
  const auto state = nlohmann::json::parse(watch.state().dump());
  resumed.restore(state, "eval_loss");
  EXPECT_EQ(resumed.state(), watch.state());
  EXPECT_EQ(resumed.best()->loss, 0.1 + 0.2);
  EXPECT_EQ(resumed.in_vain(), 1);
  fresh.restore(nullptr, "eval_loss");
  EXPECT_FALSE(fresh.best());
}

TEST(EvalWatch, ComparesNoLossWithAnother) {
  const TrainConfig config;
  EvalWatch watch(config, "eval_loss"), other(config, "eval_loss/b"), off(config), on(config, "eval_loss");
  EXPECT_TRUE(watch.add(10, 2, 2));
  other.restore(watch.state(), "eval_loss");
  EXPECT_FALSE(other.kept());
  EXPECT_EQ(other.best()->step, 10);
  EXPECT_TRUE(other.add(20, 2, 7));
  // While it is off nothing is kept, and what was kept before stays the one to be better than.
  off.restore(watch.state(), "eval_loss");
  EXPECT_FALSE(off.add(20, 1, 1));
  on.restore(off.state(), "none");
  EXPECT_EQ(on.kept()->step, 10);
  EXPECT_FALSE(on.add(30, 3, 3));
  EXPECT_TRUE(on.add(40, 1.5, 1.5));
  // A state of an older program, which noted a best that was not kept.
  nlohmann::json old = watch.state();
  old.erase("kept_of");
  EvalWatch anew(config, "eval_loss");
  anew.restore(old, "none");
  EXPECT_FALSE(anew.kept());
  EXPECT_TRUE(anew.add(50, 9, 9));
  anew.forget();
  EXPECT_FALSE(anew.best());
  EXPECT_TRUE(anew.add(60, 12, 12));
}

}  // namespace
}  // namespace tandem
