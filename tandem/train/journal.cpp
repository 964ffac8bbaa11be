#include "tandem/train/journal.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "tandem/base/clipped.h"
#include "tandem/train/run_data.h"

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
  if (num_ranks_ > 1 && config_.log.jsonl) {
    const auto path = run_dir_ / "logs" / fmt::format("rank-{}.jsonl", rank_);
    keep_rows(path, {.step_of = jsonl_step, .is_header = {}, .header = {}}, resumed, /*expected=*/false);
    own_rows_.emplace(path);
  }
  if (!events_) return;
  metrics_.emplace(run_dir_,
                   MetricsLog::Files{.jsonl = config_.log.jsonl,
                                     .csv = config_.log.csv,
                                     .columns = columns,
                                     .unit = unit_of(config_.model),
                                     .expected = own_run},
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
  if (own_rows_) own_rows_->append_line(rank_row(record));
  if (metrics_) metrics_->write(record);
  if (progress_) progress_->update(record);
}

void Journal::sync() {
  if (metrics_) metrics_->sync();
}

}  // namespace tandem
