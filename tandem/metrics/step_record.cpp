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
  visit(record.unit == CountedIn::Tokens ? "tokens" : "samples", record.count);
  visit(rate_key(record.unit), record.per_s);
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

template <typename T>
std::string csv_value(const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) return "nan";  // which has no sign that means anything
  }
  return fmt::format("{}", value);
}

std::optional<int64_t> leading_step(std::string_view text, char after) {
  int64_t step = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, step);
  if (result.ec != std::errc() || result.ptr == end || *result.ptr != after) return std::nullopt;
  return step;
}

}  // namespace

std::string_view unit_name(CountedIn unit) {
  return unit == CountedIn::Tokens ? "tokens" : unit == CountedIn::Images ? "images" : "samples";
}

std::string_view rate_key(CountedIn unit) {
  return unit == CountedIn::Tokens ? "tokens_per_s" : "samples_per_s";
}

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
  for (const auto& [name, value] : record.more)
    row += fmt::format(",{}:{}", nlohmann::json(name).dump(),
                       json_value(value));  // a pattern has any characters
  return row + "}";
}

std::vector<NamedNumber> numbers_of(const StepRecord& record) {
  std::vector<NamedNumber> numbers;
  visit_columns(record, [&]<typename T>(std::string_view name, const T& value) {
    if constexpr (kOptional<T>) {
      if (value) numbers.push_back({name, static_cast<double>(*value)});
    } else if constexpr (!std::is_same_v<T, std::string>) {
      numbers.push_back({name, static_cast<double>(value)});
    }
  });
  for (const auto& [name, value] : record.more) numbers.push_back({name, static_cast<double>(value)});
  return numbers;
}

std::vector<NamedDigits> digits_of(const StepRecord& record) {
  std::vector<NamedDigits> numbers;
  const auto add = [&]<typename T>(std::string_view name, const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(value)) return numbers.push_back({name, "NaN"});
      if (std::isinf(value)) return numbers.push_back({name, value > 0 ? "Infinity" : "-Infinity"});
    }
    numbers.push_back({name, json_value(value)});
  };
  visit_columns(record, [&]<typename T>(std::string_view name, const T& value) {
    if constexpr (kOptional<T>) {
      if (value) add(name, *value);
    } else if constexpr (!std::is_same_v<T, std::string>) {
      add(name, value);
    }
  });
  for (const auto& [name, value] : record.more) add(name, value);
  return numbers;
}

std::string rank_row(const StepRecord& record) {
  return fmt::format(
      R"({{"step":{},"step_ms":{},"data_wait_ms":{},"comm_wait_ms":{},"rss_bytes":{},"device_bytes":{}}})",
      record.step, record.step_ms, record.data_wait_ms, record.comm_wait_ms, record.rss_bytes,
      record.device_bytes);
}

std::string csv_row(const StepRecord& record, CsvColumns columns) {
  std::string row;
  visit_columns(record, [&]<typename T>(std::string_view name, const T& value) {
    if (!has_column(columns, name)) return;
    if (name != "step") row += ',';
    if constexpr (kOptional<T>) {
      if (value) row += csv_value(*value);
    } else {
      row += csv_value(value);
    }
  });
  return row;
}

std::string_view csv_header(CsvColumns columns, CountedIn unit) {
  const auto names_of = [](CsvColumns some, CountedIn counted) {
    std::string names;
    StepRecord record;
    record.unit = counted;
    visit_columns(record, [&](std::string_view name, const auto&) {
      if (!has_column(some, name)) return;
      if (!names.empty()) names += ',';
      names += name;
    });
    return names;
  };
  static const std::string tokens[] = {names_of(CsvColumns::Plain, CountedIn::Tokens),
                                       names_of(CsvColumns::WithGpu, CountedIn::Tokens)};
  static const std::string samples[] = {names_of(CsvColumns::Plain, CountedIn::Samples),
                                        names_of(CsvColumns::WithGpu, CountedIn::Samples)};
  return (unit == CountedIn::Tokens ? tokens : samples)[columns == CsvColumns::WithGpu ? 1 : 0];
}

double shortest_double(float value) { return std::stod(fmt::format("{}", value)); }

std::optional<int64_t> jsonl_step(std::string_view line) {
  if (!line.starts_with(kStepKey) || !nlohmann::json::accept(line)) return std::nullopt;
  return leading_step(line.substr(kStepKey.size()), ',');
}

std::optional<int64_t> csv_step(std::string_view line) { return leading_step(line, ','); }

}  // namespace tandem
