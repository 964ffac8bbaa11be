#include "tandem/train/journal.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "tandem/base/clipped.h"
#include "tandem/config/print.h"
#include "tandem/train/run_data.h"
#include "tandem/train/sinks.h"

namespace tandem {

Journal::Journal(const std::filesystem::path& run_dir, const Config& config, int rank, int num_ranks)
    : run_dir_(run_dir),
      config_(config),
      rank_(rank),
      num_ranks_(num_ranks),
      log_(run_dir, rank, config.train.steps) {
  if (rank == 0) events_.emplace(run_dir);
}

void Journal::begin_steps(int64_t resumed, CsvColumns columns, bool own_run) {
  if (num_ranks_ > 1 && (config_.log.jsonl || !config_.log.prometheus.empty())) {
    own_rows_.emplace(run_dir_ / "logs" / fmt::format("rank-{}.jsonl", rank_), rank_row, /*expected=*/false);
    own_rows_->resume(resumed);
  }
  if (!events_) return;
  const auto tell = [this](const std::string& sentence) {
    message("warning: " + sentence);
    event("sink", sentence);
  };
  metrics_.emplace(make_sinks(config_.log, {.run_dir = run_dir_,
                                            .columns = columns,
                                            .unit = unit_of(config_.model),
                                            .expected = own_run,
                                            .num_ranks = num_ranks_,
                                            .config = to_yaml(config_),
                                            .tell = tell}),
                   resumed);
  for (const std::string& problem : metrics_->problems()) {
    message("warning: " + problem);
    event("damaged_metrics", problem, {{"step", resumed}});
  }
  progress_.emplace(config_.train.steps);
}

void Journal::event(std::string_view type, std::string_view message, const nlohmann::json& fields) {
  if (events_) events_->write(type, clipped(message), fields);
}

void Journal::event(const EvalRecord& eval) {
  if (events_) events_->write(eval);
}

void Journal::message(std::string_view text) {
  const std::string line = clipped(text);
  log_.line(line);
  if (!events_) return;
  if (progress_) {
    progress_->message(line);
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

void Journal::log(std::string_view text) { log_.line(clipped(text)); }

void Journal::step(const StepRecord& record) {
  log_.step(record);
  if (own_rows_) own_rows_->write(record);
  if (metrics_) metrics_->write(record);
  if (progress_) progress_->update(record);
}

void Journal::sync() {
  if (metrics_) metrics_->sync();
}

}  // namespace tandem
