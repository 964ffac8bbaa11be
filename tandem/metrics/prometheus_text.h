// A run's figures in the text that Prometheus reads.
#pragma once

#include <cstdint>
#include <optional>
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
  int64_t rss_bytes = 0;
  int64_t device_bytes = 0;
};

struct RunFigures {
  std::string run;                                // its directory's name
  StepRecord record;                              // rank 0's newest; step 0 where there is none yet
  std::optional<float> eval_loss, eval_accuracy;  // of the newest evaluation
  double wall_s = 0;                              // when that step ended, since 1970
  std::vector<RankFigures> ranks;
};

enum class PrometheusFormat {
  Plain,
  OpenMetrics
};  // they differ in how a counter is declared, and in the end
PrometheusFormat wanted_format(std::string_view accept);
std::string_view content_type(PrometheusFormat format);
std::string prometheus_text(const RunFigures& figures, PrometheusFormat format);

// Of the last line of logs/rank-<n>.jsonl; nothing where it is none.
std::optional<RankFigures> rank_figures(int rank, std::string_view lines);

}  // namespace tandem
