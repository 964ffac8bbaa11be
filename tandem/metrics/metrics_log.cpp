#include "tandem/metrics/metrics_log.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/base/system.h"

namespace tandem {

MetricsLog::MetricsLog(const std::filesystem::path& run_dir, Files files, int64_t resume_step)
    : columns_(files.columns), unit_(files.unit), last_step_(resume_step) {
  const auto keep = [&](const std::filesystem::path& path, const RowFormat& format) {
    if (resume_step == 0) return truncate_lines(path, [](std::string_view) { return false; });
    std::string problem = keep_rows(path, format, resume_step, files.expected);
    if (!problem.empty()) problems_.push_back(std::move(problem));
  };
  if (files.jsonl) {
    const auto path = run_dir / "metrics.jsonl";
    keep(path, {.step_of = jsonl_step, .is_header = {}, .header = {}});
    jsonl_.emplace(path);
  }
  if (files.csv) {
    const auto path = run_dir / "metrics.csv";
    keep(path, csv_format());
    csv_.emplace(path);
    if (std::filesystem::file_size(path) == 0) csv_->append_line(csv_header(columns_, unit_));
  }
}

// The file's own columns, as its header says or else its first row.
RowFormat MetricsLog::csv_format() {
  static constexpr CsvColumns kBoth[] = {CsvColumns::Plain, CsvColumns::WithGpu};
  return {.step_of = [this](std::string_view line) -> std::optional<int64_t> {
            const auto count = [](std::string_view text) {
              return std::count(text.begin(), text.end(), ',');
            };
            for (CsvColumns columns : kBoth) {
              if (count(line) != count(csv_header(columns)) || !csv_step(line)) continue;
              if (known_columns_ && columns != columns_) continue;
              columns_ = columns;
              known_columns_ = true;
              return csv_step(line);
            }
            return std::nullopt;
          },
          .is_header =
              [this](std::string_view line) {
                for (CsvColumns columns : kBoth) {
                  // That of an image model was once headed like that of text.
                  if (line != csv_header(columns, unit_) && line != csv_header(columns)) continue;
                  columns_ = columns;
                  known_columns_ = true;
                }
                return known_columns_;
              },
          .header = [this] { return std::string(csv_header(columns_, unit_)); }};
}

void MetricsLog::write(StepRecord record) {
  TANDEM_CHECK(record.step > last_step_, "step {} after step {}", record.step, last_step_);
  last_step_ = record.step;
  if (record.time.empty()) record.time = utc_time();
  if (jsonl_) jsonl_->append_line(jsonl_row(record));
  if (csv_) csv_->append_line(csv_row(record, columns_));
}

void MetricsLog::sync() {
  if (jsonl_) jsonl_->sync();
  if (csv_) csv_->sync();
}

}  // namespace tandem
