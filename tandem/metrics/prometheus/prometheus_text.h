// A run's figures in the text that Prometheus reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/metrics/rank_figures.h"
#include "tandem/metrics/step_record.h"

namespace tandem {

struct RunFigures {
  std::string run;                                // its directory's name
  StepRecord record;                              // rank 0's newest; step 0 where there is none yet
  std::optional<float> eval_loss, eval_accuracy;  // of the newest evaluation
  double wall_s = 0;                              // when that step ended, since 1970
  std::vector<RankFigures> ranks;
  std::string places;  // what the launcher knows of the ranks, a JSON array; empty where there is no launcher
  std::optional<int64_t> restarts;  // by the launcher, so far

  void begin(const std::filesystem::path& run_dir);  // its name, and what the environment says
  void add(const StepRecord& row);                   // which has just been written
};

enum class PrometheusFormat {
  Plain,
  OpenMetrics
};  // they differ in how a counter is declared, and in the end
PrometheusFormat wanted_format(std::string_view accept);
std::string_view content_type(PrometheusFormat format);
std::string prometheus_text(const RunFigures& figures, PrometheusFormat format);

}  // namespace tandem
