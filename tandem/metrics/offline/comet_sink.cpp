#include "tandem/metrics/offline/comet_sink.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/system.h"
#include "tandem/metrics/offline/run_name.h"
#include "tandem/metrics/offline/zip_archive.h"
#include "tandem/metrics/step_sequence.h"
#include "tandem/metrics/tensorboard/tensorboard_event.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kMessages = "messages.json";
constexpr std::string_view kExperiment = "experiment.json";
constexpr std::string_view kMetric = R"({"type":"metric_msg","payload":{"local_timestamp":)";
// The last number of each step: where it is, the step is whole.
constexpr std::string_view kWhole = R"({"metricName":"loss",)";
constexpr size_t kKeyLength = 32;

int64_t in_ms(double wall_s) { return std::llround(wall_s * 1e3); }

std::string metric_line(int64_t wall_ms, const NamedDigits& number, const StepRecord& record) {
  const bool finite = number.digits.find_first_of("Ny") == std::string::npos;  // else NaN or Infinity
  return fmt::format(R"({}{},"metric":{{"metricName":"{}","metricValue":{}{}{},"step":{},"epoch":{}}}}}}})"
                     "\n",
                     kMetric, wall_ms, number.name, finite ? "" : "\"", number.digits, finite ? "" : "\"",
                     record.step, record.epoch);
}

template <typename T>
std::optional<T> number_after(std::string_view line, std::string_view words) {
  const size_t at = line.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  T value{};
  const char* begin = line.data() + at + words.size();
  const auto [end, error] = std::from_chars(begin, line.data() + line.size(), value);
  return error == std::errc() && end != begin ? std::optional(value) : std::nullopt;
}

struct KeptRows {
  size_t bytes = 0;  // of messages.json
  int64_t start_ms = 0;
  StepSequence steps;
  bool damaged = false;
};

// What of the lines a run keeps that goes on behind step `last`. They are looked for without the archive's
// directory, which is not there where a write was cut off.
KeptRows read_kept(std::string_view archive, int64_t last) {
  KeptRows kept;
  const std::string head = zip::growing_head(kMessages);
  if (!archive.starts_with(head)) {
    kept.damaged = !head.starts_with(archive);
    return kept;
  }
  archive.remove_prefix(head.size());
  for (size_t at = 0;;) {
    const size_t end = archive.find('\n', at);
    const std::string_view line = archive.substr(at, end - at);
    if (end == std::string_view::npos || !line.starts_with("{\"type\":\"") || !line.ends_with("}}")) break;
    at = end + 1;
    if (kept.start_ms == 0) kept.start_ms = number_after<int64_t>(line, "\"local_timestamp\":").value_or(0);
    if (!line.starts_with(kMetric)) continue;
    const auto step = number_after<int64_t>(line, "\"step\":");
    if (!step || *step > last) break;
    if (line.find(kWhole) == std::string_view::npos) continue;
    if (*step <= kept.steps.last()) {
      kept.damaged = true;
      break;
    }
    kept.steps.add(*step);
    kept.bytes = at;
  }
  return kept;
}

void add_parameters(std::string& lines, int64_t wall_ms, const std::string& prefix,
                    const nlohmann::json& value) {
  if (value.is_object()) {
    for (const auto& [key, part] : value.items())
      add_parameters(lines, wall_ms, prefix.empty() ? key : prefix + "." + key, part);
    return;
  }
  const nlohmann::json param = {{"paramName", prefix},
                                {"paramValue", value.is_string() ? value.get<std::string>() : value.dump()},
                                {"step", nullptr},
                                {"source", "manual"}};
  lines += fmt::format(R"({{"type":"parameter_msg","payload":{{"local_timestamp":{},"param":{}}}}})"
                       "\n",
                       wall_ms, param.dump());
}

}  // namespace

CometSink::CometSink(const SinkOptions& options)
    : folder_(options.run_dir / "comet"),
      name_(run_name(options.run_dir)),
      config_(options.config_json.empty() ? "{}" : options.config_json),
      expected_(options.expected) {}

std::string CometSink::resume(int64_t last) {
  make_directories(folder_);
  fs::path path = newest_named(folder_, "", ".zip");
  if (path.empty()) path = folder_ / (random_id(kKeyLength, "0123456789abcdef") + ".zip");
  key_ = path.stem().string();
  KeptRows kept;
  bytes_ = 0;
  crc_ = 0;
  start_ms_ = in_ms(unix_s());
  if (is_there(path) && regular_file_bytes(path) > 0) {
    const MappedFile file(path);
    const std::string_view archive(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    kept = read_kept(archive, last);
    if (last > 0 && !kept.steps.empty()) {
      bytes_ = kept.bytes;
      crc_ = zip::crc_of(archive.substr(zip::growing_head(kMessages).size(), kept.bytes));
      start_ms_ = kept.start_ms;
    }
  }
  const std::string copy =
      kept.damaged ? keep_damaged_copy(path, "zip-was").filename().string() : std::string();
  const std::string head = zip::growing_head(kMessages);
  file_ = GrowingFile(path, bytes_ == 0 ? 0 : static_cast<int64_t>(head.size() + bytes_));
  if (bytes_ == 0) file_.append(head);
  add(facts(), in_ms(unix_s()));
  const auto missing = kept.steps.first_missing(last);
  if (kept.damaged) {
    return fmt::format("{}: was damaged, and is kept as {}; {}", path.string(), copy,
                       missing ? fmt::format("step {} is lost", *missing) : "no step is lost");
  }
  return expected_ && missing ? lacks(path, *missing, last) : "";
}

std::string CometSink::facts() const {
  const int64_t now = in_ms(unix_s());
  std::string lines = fmt::format(R"({{"type":"log_other","payload":{{"key":"Name","value":{}}}}})"
                                  "\n",
                                  nlohmann::json(name_).dump());
  add_parameters(lines, now, "", nlohmann::json::parse(config_));
  return lines;
}

// The archive's tail gives way to the lines and a new tail in one write.
void CometSink::add(const std::string& lines, int64_t wall_ms) {
  const uint64_t bytes = bytes_ + lines.size();
  const uint32_t crc = zip::crc_of(lines, crc_);
  const std::string workspace = from_environment("COMET_WORKSPACE", "");
  const nlohmann::json experiment = {
      {"offline_id", key_},
      {"project_name", from_environment("COMET_PROJECT_NAME", "tandem")},
      {"workspace", workspace.empty() ? nlohmann::json() : nlohmann::json(workspace)},
      {"start_time", start_ms_},
      {"stop_time", wall_ms},
      {"tags", nlohmann::json::array({"tandem"})},
      {"resume_strategy", "create"},
      {"customer_error_reported", false},
      {"customer_error_message", nullptr}};
  const auto behind = static_cast<int64_t>(zip::growing_head(kMessages).size() + bytes_);
  std::string tail = zip::tail({kMessages, crc, bytes}, kExperiment, experiment.dump());
  try {
    file_.replace_tail(behind, lines + tail);
  } catch (const IoError&) {  // a full disk; there is room for what was there
    file_.replace_tail(behind, tail_);
    throw;
  }
  bytes_ = bytes;
  crc_ = crc;
  tail_ = std::move(tail);
}

void CometSink::write(const StepRecord& record) {
  const int64_t wall_ms = in_ms(tensorboard::wall_time(record.time));
  std::string lines, loss;
  for (const NamedDigits& number : digits_of(record)) {
    if (number.name == "step" || number.name == "epoch") continue;
    (number.name == "loss" ? loss : lines) += metric_line(wall_ms, number, record);
  }
  add(lines + loss, wall_ms);
}

}  // namespace tandem
