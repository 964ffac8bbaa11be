// What a run tells the world: progress on the terminal, metrics, events. One rank keeps it; the others' are
// silent, so that the training loop is the same on all.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "tandem/config/config.h"
#include "tandem/metrics/event_log.h"
#include "tandem/metrics/metrics_log.h"
#include "tandem/metrics/progress.h"

namespace tandem {

class Journal {
 public:
  Journal() = default;                                     // silent
  explicit Journal(const std::filesystem::path& run_dir);  // which must exist

  // From here on there are steps: metrics go on behind `resumed`.
  void begin_steps(const Config& config, int64_t resumed, CsvColumns columns);

  void event(std::string_view type, std::string_view message,
             const nlohmann::json& fields = nlohmann::json::object());
  void event(const EvalRecord& eval);
  void message(std::string_view line);  // to the terminal
  void step(const StepRecord& record);
  void sync();  // returns when all metrics are on disk

 private:
  std::filesystem::path run_dir_;
  std::optional<EventLog> events_;
  std::optional<MetricsLog> metrics_;
  std::optional<Progress> progress_;
};

}  // namespace tandem
