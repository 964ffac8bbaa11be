#include "tandem/metrics/rank_figures.h"

#include <gtest/gtest.h>

#include "tandem/base/temporary_directory_test.h"

namespace tandem {
namespace {

std::vector<RankFigures> ranks_of(int64_t step, std::initializer_list<double> waits) {
  std::vector<RankFigures> ranks;
  for (double wait : waits) {
    RankFigures figures;
    figures.rank = static_cast<int>(ranks.size());
    figures.step = step;
    figures.step_ms = 100;
    figures.comm_wait_ms = wait;
    ranks.push_back(figures);
  }
  return ranks;
}

TEST(StragglerWatch, TellsOfARankThatTheOthersKeepWaitingForOnce) {
  StragglerWatch watch;
  for (int64_t step = 1; step <= 20; ++step) {
    const auto news = watch.add(ranks_of(step, {60, 55, 2, 58}));
    EXPECT_EQ(news.has_value(), step == StragglerWatch::kLooks) << step;
    if (news) {
      EXPECT_EQ(news->rank, 2);
      EXPECT_EQ(news->busy_ms, 98);
      EXPECT_EQ(news->others_ms, 42);
    }
  }
  EXPECT_EQ(watch.slow(), 2);
  watch.add(ranks_of(21, {10, 12, 9, 11}));
  EXPECT_EQ(watch.slow(), std::nullopt);
}

TEST(StragglerWatch, SaysNothingOfOneLongStepOfChangingRanksOrOfTheSameStepSeenTwice) {
  StragglerWatch watch;
  for (int64_t step = 1; step <= 40; ++step) {
    EXPECT_FALSE(watch.add(step % 4 == 0 ? ranks_of(step, {50, 50, 1}) : ranks_of(step, {9, 10, 11})));
    EXPECT_FALSE(watch.add(ranks_of(step, {50, 50, 1})));
  }
  for (int64_t step = 41; step <= 80; ++step)
    EXPECT_FALSE(watch.add(step % 2 == 0 ? ranks_of(step, {1, 50, 50}) : ranks_of(step, {50, 1, 50})));
}

TEST(RankFigures, AreThoseOfTheLastWholeLine) {
  const TemporaryDirectory run;
  std::filesystem::create_directories(run.path() / "logs");
  run.write(
      "logs/rank-1.jsonl",
      R"({"step":1,"step_ms":2,"data_wait_ms":0,"rss_bytes":1,"device_bytes":0})"
      "\n"
      R"({"step":2,"step_ms":2.5,"data_wait_ms":0.5,"comm_wait_ms":1,"rss_bytes":7,"device_bytes":0,"node":"b","pid":812})"
      "\n"
      R"({"step":3,"step_)");
  const auto ranks = read_rank_figures(run.path(), {}, 3);
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[1].step, 2);
  EXPECT_EQ(ranks[1].busy_ms(), 1.5);
  EXPECT_EQ(ranks[1].node, "b");
  EXPECT_EQ(ranks[1].pid, 812);
}

}  // namespace
}  // namespace tandem
