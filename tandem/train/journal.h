// What a run tells the world: progress on the terminal, metrics, events, its status, a webhook. One rank
// keeps them; the others' have only a log, so that the training loop is the same on all.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "tandem/config/config.h"
#include "tandem/metrics/event_log.h"
#include "tandem/metrics/jsonl_sink.h"
#include "tandem/metrics/metrics_log.h"
#include "tandem/metrics/progress.h"
#include "tandem/metrics/rank_log.h"
#include "tandem/metrics/webhook.h"
#include "tandem/train/news/run_watch.h"

namespace tandem {

class Journal {
 public:
  // The directory must exist. Of all ranks, rank 0 also keeps what there is one of; of several, each keeps
  // its own times and memory.
  Journal(const std::filesystem::path& run_dir, const Config& config, int rank, int num_ranks);

  // From here on there are steps: metrics go on behind `resumed`. Rows up to there are expected, and their
  // lack is told, where it is this directory's own run that goes on.
  void begin_steps(int64_t resumed, CsvColumns columns, bool own_run);

  void event(std::string_view type, std::string_view message,
             const nlohmann::json& fields = nlohmann::json::object());
  void event(const EvalRecord& eval);
  void message(std::string_view line);  // to the terminal, and to the log
  void log(std::string_view line);
  void set_money(const std::string& text) {  // what the run has cost, on the progress line
    if (progress_) progress_->set_money(text);
  }
  void step(const StepRecord& record);
  void histograms(const std::vector<Histogram>& all);  // of that step
  void end_progress() {                                // before something else is printed
    if (progress_) progress_->end_line();
  }
  void sync();    // returns when all metrics are on disk
  void finish();  // the run has reached its end

 private:
  void note_state(std::string_view type, const std::string& message, const nlohmann::json& fields);
  void watch(const StepRecord& record);

  std::filesystem::path run_dir_;
  const Config& config_;
  int rank_, num_ranks_;
  RankLog log_;
  std::optional<EventLog> events_;
  std::optional<MetricsLog> metrics_;
  std::optional<JsonlSink> own_rows_;
  std::optional<Progress> progress_;
  std::optional<RunWatch> watch_;
  bool diverged_ = false;
  std::optional<Webhook> webhook_;  // last: what waits is sent before the rest goes
};

}  // namespace tandem
