// The newest times and memory of every rank, as rank 0 finds them in logs/rank-<n>.jsonl.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/metrics/step_record.h"

namespace tandem {

struct RankFigures {
  int rank = 0;
  int64_t step = 0;
  double step_ms = 0;
  double data_wait_ms = 0;
  double comm_wait_ms = 0;  // for other ranks; may run beside its computation
  int64_t rss_bytes = 0;
  int64_t device_bytes = 0;
  std::string node;  // empty where it is not known
  int64_t pid = 0;

  double busy_ms() const { return step_ms - comm_wait_ms; }
};

RankFigures figures_of(int rank, const StepRecord& record);

// Of the last line of logs/rank-<n>.jsonl; nothing where it is none.
std::optional<RankFigures> rank_figures(int rank, std::string_view lines);

// Rank 0's as given, and those of the others that have any.
std::vector<RankFigures> read_rank_figures(const std::filesystem::path& run_dir, const RankFigures& own,
                                           int num_ranks);

// The one that others wait for. Of two looks at ranks in the same step, so that one long step is no news.
class StragglerWatch {
 public:
  static constexpr int kLooks = 5;             // in a row
  static constexpr double kMuchSlower = 1.25;  // than the median of the others ...
  static constexpr double kLeastMs = 2;        // ... and by this much

  struct News {
    int rank = 0;
    double busy_ms = 0, others_ms = 0;
  };
  std::optional<News> add(std::span<const RankFigures> ranks);  // where it has just become one
  std::optional<int> slow() const;                              // the rank that is one

 private:
  int rank_ = -1, looks_ = 0;
  int64_t step_ = 0;
};

// The busiest of several, and how busy the median of the others is.
StragglerWatch::News busiest(std::span<const RankFigures> ranks);

}  // namespace tandem
