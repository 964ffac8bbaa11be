#include "tandem/metrics/metrics_log.h"

#include "tandem/base/error.h"
#include "tandem/base/system.h"

namespace tandem {

MetricsLog::MetricsLog(const std::filesystem::path& run_dir, Files files, int64_t resume_step)
    : columns_(files.columns), last_step_(resume_step) {
  // Rows are appended in the order of steps, so those to keep are the file's first ones.
  if (files.jsonl) {
    const auto path = run_dir / "metrics.jsonl";
    truncate_lines(path, [&](std::string_view line) {
      return jsonl_step(line).value_or(resume_step + 1) <= resume_step;
    });
    jsonl_.emplace(path);
  }
  if (files.csv) {
    const auto path = run_dir / "metrics.csv";
    truncate_lines(path, [&](std::string_view line) {
      for (CsvColumns columns : {CsvColumns::Plain, CsvColumns::WithGpu}) {
        if (line != csv_header(columns) || (resume_step == 0 && columns != files.columns)) continue;
        columns_ = columns;
        return true;
      }
      return csv_step(line).value_or(resume_step + 1) <= resume_step;
    });
    csv_.emplace(path);
    if (std::filesystem::file_size(path) == 0) csv_->append_line(csv_header(columns_));
  }
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
