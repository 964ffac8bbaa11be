#include "tandem/metrics/event_log.h"

#include <fmt/format.h>

#include "tandem/base/error.h"
#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/metrics/step_record.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;  // time, type and message first

std::filesystem::path without_half_line(const std::filesystem::path& path) {
  truncate_lines(path, [](std::string_view) { return true; });
  return path;
}

}  // namespace

EventLog::EventLog(const std::filesystem::path& run_dir)
    : file_(without_half_line(run_dir / "events.jsonl")) {}

void EventLog::write(std::string_view type, std::string_view message, const nlohmann::json& fields) {
  TANDEM_CHECK(fields.is_object());
  const std::lock_guard lock(mutex_);
  Json line = {{"time", utc_time()}, {"type", type}, {"message", message}};
  for (const auto& [key, value] : fields.items()) line[key] = value;
  file_.append_line(line.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void EventLog::write(const EvalRecord& eval) {
  nlohmann::json fields = {{"step", eval.step}, {"eval_loss", shortest_double(eval.eval_loss)}};
  std::string message = fmt::format("step {}: eval loss {}", eval.step, format_loss(eval.eval_loss));
  if (eval.eval_accuracy) {
    fields["eval_accuracy"] = shortest_double(*eval.eval_accuracy);
    message += fmt::format(", accuracy {:.2f}%", 100 * *eval.eval_accuracy);
  }
  for (const auto& [name, value] : eval.more) {
    fields[name] = shortest_double(value);
    message += fmt::format(", {} {}", name, format_loss(value));
  }
  write("eval", message, fields);
}

}  // namespace tandem
