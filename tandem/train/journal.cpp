#include "tandem/train/journal.h"

#include <cstdio>
#include <string>

namespace tandem {

Journal::Journal(const std::filesystem::path& run_dir) : run_dir_(run_dir) { events_.emplace(run_dir); }

void Journal::begin_steps(const Config& config, int64_t resumed, CsvColumns columns) {
  if (!events_) return;
  metrics_.emplace(run_dir_,
                   MetricsLog::Files{.jsonl = config.log.jsonl, .csv = config.log.csv, .columns = columns},
                   resumed);
  progress_.emplace(config.train.steps);
}

void Journal::event(std::string_view type, std::string_view message, const nlohmann::json& fields) {
  if (events_) events_->write(type, message, fields);
}

void Journal::event(const EvalRecord& eval) {
  if (events_) events_->write(eval);
}

void Journal::message(std::string_view line) {
  if (!events_) return;
  if (progress_) {
    progress_->message(line);
  } else {
    std::fprintf(stderr, "%s\n", std::string(line).c_str());
  }
}

void Journal::step(const StepRecord& record) {
  if (metrics_) metrics_->write(record);
  if (progress_) progress_->update(record);
}

void Journal::sync() {
  if (metrics_) metrics_->sync();
}

}  // namespace tandem
