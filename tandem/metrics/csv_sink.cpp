#include "tandem/metrics/csv_sink.h"

#include <algorithm>

namespace tandem {

CsvSink::CsvSink(const SinkOptions& options)
    : path_(options.run_dir / "metrics.csv"),
      columns_(options.columns),
      unit_(options.unit),
      expected_(options.expected) {}

std::string CsvSink::resume(int64_t last) {
  std::string problem = keep_rows(path_, format(), last, expected_);
  file_.emplace(path_);
  if (std::filesystem::file_size(path_) == 0) file_->append_line(csv_header(columns_, unit_));
  return problem;
}

// The file's own columns, as its header says or else its first row.
RowFormat CsvSink::format() {
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

void CsvSink::write(const StepRecord& record) { file_->append_line(csv_row(record, columns_)); }

void CsvSink::sync() { file_->sync(); }

}  // namespace tandem
