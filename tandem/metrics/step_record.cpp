#include "tandem/metrics/step_record.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

namespace tandem {
namespace {

constexpr std::string_view kStepKey = "{\"step\":";

// The one list of columns. Optional ones come last and may be absent from a JSON row, those of a GPU from a
// CSV.
template <typename Visit>
void visit_columns(const StepRecord& record, Visit&& visit) {
  visit("step", record.step);
  visit("epoch", record.epoch);
  visit("loss", record.loss);
  visit("lr", record.lr);
  visit("grad_norm", record.grad_norm);
  visit("loss_scale", record.loss_scale);
  visit("tokens", record.tokens);
  visit("tokens_per_s", record.tokens_per_s);
  visit("step_ms", record.step_ms);
  visit("data_wait_ms", record.data_wait_ms);
  visit("rss_bytes", record.rss_bytes);
  visit("device_bytes", record.device_bytes);
  visit("mfu", record.mfu);
  visit("time", record.time);
  visit("eval_loss", record.eval_loss);
  visit("eval_accuracy", record.eval_accuracy);
  visit("gpu_busy_percent", record.gpu_busy_percent);
  visit("gpu_power_w", record.gpu_power_w);
  visit("gpu_temperature_c", record.gpu_temperature_c);
  visit("gpu_used_bytes", record.gpu_used_bytes);
}

bool has_column(CsvColumns columns, std::string_view name) {
  return columns == CsvColumns::WithGpu || !name.starts_with("gpu_");
}

template <typename T>
constexpr bool kOptional = false;
template <typename T>
constexpr bool kOptional<std::optional<T>> = true;

template <typename T>
std::string json_value(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return fmt::format("\"{}\"", value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return std::isfinite(value) ? fmt::format("{}", value) : "null";
  } else {
    return fmt::format("{}", value);
  }
}

std::optional<int64_t> leading_step(std::string_view text, char after) {
  int64_t step = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, step);
  if (result.ec != std::errc() || result.ptr == end || *result.ptr != after) return std::nullopt;
  return step;
}

}  // namespace

std::string jsonl_row(const StepRecord& record) {
  std::string row;
  visit_columns(record, [&]<typename T>(std::string_view name, const T& value) {
    std::string text;
    if constexpr (kOptional<T>) {
      if (!value) return;
      text = json_value(*value);
    } else {
      text = json_value(value);
    }
    row += fmt::format("{}\"{}\":{}", row.empty() ? "{" : ",", name, text);
  });
  return row + "}";
}

std::string csv_row(const StepRecord& record, CsvColumns columns) {
  std::string row;
  visit_columns(record, [&]<typename T>(std::string_view name, const T& value) {
    if (!has_column(columns, name)) return;
    if (name != "step") row += ',';
    if constexpr (kOptional<T>) {
      if (value) row += fmt::format("{}", *value);
    } else {
      row += fmt::format("{}", value);
    }
  });
  return row;
}

std::string_view csv_header(CsvColumns columns) {
  const auto names_of = [](CsvColumns some) {
    std::string names;
    visit_columns(StepRecord{}, [&](std::string_view name, const auto&) {
      if (!has_column(some, name)) return;
      if (!names.empty()) names += ',';
      names += name;
    });
    return names;
  };
  static const std::string plain = names_of(CsvColumns::Plain), with_gpu = names_of(CsvColumns::WithGpu);
  return columns == CsvColumns::WithGpu ? with_gpu : plain;
}

double shortest_double(float value) { return std::stod(fmt::format("{}", value)); }

std::optional<int64_t> jsonl_step(std::string_view line) {
  if (!line.starts_with(kStepKey) || !nlohmann::json::accept(line)) return std::nullopt;
  return leading_step(line.substr(kStepKey.size()), ',');
}

std::optional<int64_t> csv_step(std::string_view line) { return leading_step(line, ','); }

}  // namespace tandem
