#include "tandem/pipeline/sweep.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tandem/base/message_of_test.h"
#include "tandem/base/temporary_directory_test.h"
#include "tandem/pipeline/curve.h"

namespace tandem::pipeline {
namespace {

using Sets = std::vector<std::vector<std::string>>;

TEST(Grid, IsEveryCombination) {
  const std::vector<Axis> axes = {parse_axis("train.lr=1e-3,3e-4"), parse_axis("model.blocks=[1,2],[3]")};
  EXPECT_EQ(combinations(axes, 0, 0), (Sets{{"train.lr=1e-3", "model.blocks=[1,2]"},
                                            {"train.lr=1e-3", "model.blocks=[3]"},
                                            {"train.lr=3e-4", "model.blocks=[1,2]"},
                                            {"train.lr=3e-4", "model.blocks=[3]"}}));
}

TEST(Grid, IsDrawnFromByLotWithoutRepetition) {
  const std::vector<Axis> axes = {parse_axis("a.b=1,2,3,4,5,6,7"), parse_axis("c.d=1,2,3,4,5")};
  const Sets some = combinations(axes, 9, 1);
  EXPECT_EQ(std::set(some.begin(), some.end()).size(), 9u);
  EXPECT_EQ(some, combinations(axes, 9, 1));
  EXPECT_NE(some, combinations(axes, 9, 2));
  EXPECT_EQ(combinations(axes, 99, 1).size(), 35u);
}

TEST(Grid, RefusesWhatIsNone) {
  for (const char* text : {"train.lr", "=1", "train.lr=", "train.lr=1,,2", "train.lr=1,1"})
    EXPECT_TRUE(message_of<ConfigError>([&] { parse_axis(text); }).starts_with("--grid ")) << text;
  const std::vector<Axis> twice = {parse_axis("a.b=1"), parse_axis("a.b=2")};
  EXPECT_EQ(message_of<ConfigError>([&] { combinations(twice, 0, 0); }), "--grid a.b: is there twice");
}

TEST(Halving, EndsWithOneWholeRun) {
  const auto told = [](size_t trials, int64_t factor) {
    std::vector<std::pair<size_t, double>> rungs;
    for (const Rung& rung : halving_rungs(trials, factor)) rungs.emplace_back(rung.trials, rung.fraction);
    return rungs;
  };
  using Rungs = std::vector<std::pair<size_t, double>>;
  EXPECT_EQ(told(4, 2), (Rungs{{4, 0.25}, {2, 0.5}, {1, 1}}));
  EXPECT_EQ(told(5, 2), (Rungs{{5, 0.125}, {3, 0.25}, {2, 0.5}, {1, 1}}));
  EXPECT_EQ(told(9, 3), (Rungs{{9, 1 / 9.0}, {3, 1 / 3.0}, {1, 1}}));
  EXPECT_EQ(told(1, 2), (Rungs{{1, 1}}));
  EXPECT_EQ(told(7, 0), (Rungs{{7, 1}}));
}

TEST(Curve, IsComparedByWhatItHadReachedByAStep) {
  TemporaryDirectory run;
  std::string rows;
  for (int step = 1; step <= 40; ++step) {
    rows += "{\"step\": " + std::to_string(step) + ", \"loss\": " + std::to_string(100 - step);
    rows += step % 10 == 0 ? ", \"eval_loss\": " + std::to_string(step) + "}\n" : "}\n";
  }
  run.write("metrics.jsonl", rows + "{\"step\": 41, \"lo");  // being written
  const Curve curve = read_curve(run.path());
  EXPECT_EQ(curve.last_step(), 40);
  EXPECT_EQ(last_step(run.path()), 40);
  EXPECT_EQ(score_at(curve, 20, false), (81 + 80) / 2.0);
  EXPECT_EQ(score_at(curve, 5, false), 95);
  EXPECT_EQ(score_at(curve, 29, true), 20);
  EXPECT_FALSE(has_eval_at(curve, 9));
  EXPECT_TRUE(has_eval_at(curve, 10));
  EXPECT_TRUE(std::isinf(score_at(curve, 9, true)));
  EXPECT_TRUE(std::isinf(score_at(read_curve(run.path() / "none"), 5, false)));
  run.write("metrics.jsonl", "{\"step\": 1, \"loss\": null}\n");
  EXPECT_TRUE(std::isinf(score_at(read_curve(run.path()), 1, false)));
}

}  // namespace
}  // namespace tandem::pipeline
