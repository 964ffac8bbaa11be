#include "tandem/metrics/summary.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "tandem/base/file.h"
#include "tandem/base/quantity.h"
#include "tandem/base/system.h"
#include "tandem/metrics/step_record.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

double as_written(float value) { return shortest_double(value); }
double as_written(double value) { return value; }
int64_t as_written(int64_t value) { return value; }

template <typename T>
void put(Json& object, const char* key, const std::optional<T>& value) {
  if (value) object[key] = as_written(*value);
}

int64_t total(const std::vector<std::pair<std::string, int64_t>>& parts) {
  int64_t bytes = 0;
  for (const auto& part : parts) bytes += part.second;
  return bytes;
}

// The data axis's strategy, and the other axes where there are any: "fsdp x tensor 2 x pipeline 2".
std::string axes_text(const Summary& summary) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : " x ") + part; };
  if (summary.mesh.data > 1 || summary.mesh.world() == 1) add(summary.strategy);
  if (summary.mesh.tensor > 1) add(fmt::format("tensor {}", summary.mesh.tensor));
  if (summary.mesh.pipeline > 1) add(fmt::format("pipeline {}", summary.mesh.pipeline));
  return text;
}

}  // namespace

void write_summary(const std::filesystem::path& run_dir, const Summary& summary) {
  Json object;  // numbers that are not finite become null
  object["steps"] = summary.steps;
  object["steps_this_start"] = summary.steps_this_start;
  object["final_loss"] = number(summary.final_loss);
  put(object, "eval_loss", summary.eval_loss);
  put(object, "eval_accuracy", summary.eval_accuracy);
  put(object, "loss_floor", summary.loss_floor);
  put(object, "best_accuracy", summary.best_accuracy);
  object[std::string(rate_key(summary.unit))] = number(summary.per_s);
  put(object, "mfu", summary.mfu);
  object["peak_rss_bytes"] = summary.peak_rss_bytes;
  object["peak_device_bytes"] = summary.peak_device_bytes;
  put(object, "library_bytes", summary.library_bytes);
  Json& planned = object["planned_bytes"] = Json::object();
  for (const auto& [category, bytes] : summary.planned_bytes) planned[category] = bytes;
  object["wall_s"] = number(summary.wall_s);
  object["first_step_s"] = number(summary.first_step_s);
  object["world_size"] = summary.world_size;
  object["mesh"] = {
      {"data", summary.mesh.data}, {"tensor", summary.mesh.tensor}, {"pipeline", summary.mesh.pipeline}};
  object["strategy"] = summary.strategy;
  object["precision"] = summary.precision;
  object["hostname"] = summary.hostname.empty() ? hostname() : summary.hostname;
  object["hardware"] = summary.hardware.empty() ? hardware_description() : summary.hardware;
  write_atomically(run_dir / "summary.json",
                   object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string summary_table(const Summary& summary, const std::filesystem::path& run_dir) {
  std::string table;
  const auto row = [&](std::string_view key, const std::string& value) {
    fmt::format_to(std::back_inserter(table), "  {:<14} {}\n", key, value);
  };
  std::string steps = fmt::format("{}", summary.steps);
  if (summary.steps_this_start > 0) {
    steps = fmt::format("{} in {} (first after {})", summary.steps_this_start,
                        format_duration(summary.wall_s), format_duration(summary.first_step_s));
    if (summary.steps > summary.steps_this_start) steps += fmt::format(", {} in total", summary.steps);
  }
  row("steps", steps);
  row("final loss", format_loss(summary.final_loss));
  if (summary.eval_loss) {
    std::string text = format_loss(*summary.eval_loss);
    if (summary.loss_floor) {
      text += fmt::format(" (floor {:.4f}, {:+.1f}%)", *summary.loss_floor,
                          100 * (static_cast<double>(*summary.eval_loss) / *summary.loss_floor - 1));
    }
    row("eval loss", text);
  }
  if (summary.eval_accuracy) {
    std::string text = fmt::format("{:.2f}%", 100 * *summary.eval_accuracy);
    if (summary.best_accuracy) text += fmt::format(" (best possible {:.2f}%)", 100 * *summary.best_accuracy);
    row("eval accuracy", text);
  }
  row("speed", fmt::format("{} {}/s", format_count(summary.per_s), unit_name(summary.unit)) +
                   (summary.mfu ? fmt::format(", MFU {:.1f}%", 100 * *summary.mfu) : ""));
  row("memory", fmt::format("{} planned, {} resident at most", format_bytes(total(summary.planned_bytes)),
                            format_bytes(summary.peak_rss_bytes)));
  if (summary.library_bytes) {
    row("device memory",
        fmt::format("{} at most, {} of it for driver and libraries", format_bytes(summary.peak_device_bytes),
                    format_bytes(*summary.library_bytes)));
  }
  row("setup",
      fmt::format("{}, {}, world size {}", summary.precision, axes_text(summary), summary.world_size));
  row("hardware", summary.hardware.empty() ? hardware_description() : summary.hardware);
  row("run directory", run_dir.string());
  return table;
}

}  // namespace tandem
