// events.jsonl of a run: what happened and when (start, resume, checkpoint, eval, interrupt, warning, end),
// in the order it happened. Unlike metrics it is never cut back: a killed attempt is part of the story.
#pragma once

#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/metrics/append_file.h"

namespace tandem {

struct EvalRecord {
  int64_t step = 0;
  float eval_loss = 0;
  std::optional<float> eval_accuracy;
  std::vector<std::pair<std::string, float>> more = {};  // eval_loss/NAME
};

class EventLog {
 public:
  explicit EventLog(const std::filesystem::path& run_dir);  // which must exist; goes on behind what is there

  // One line {time, type, message} and the fields. Any thread may.
  void write(std::string_view type, std::string_view message,
             const nlohmann::json& fields = nlohmann::json::object());
  void write(const EvalRecord& eval);  // type "eval"

 private:
  std::mutex mutex_;
  AppendFile file_;
};

}  // namespace tandem
