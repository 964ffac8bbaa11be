// metrics.csv: a table with a header and a row for each step.
#pragma once

#include <optional>

#include "tandem/metrics/append_file.h"
#include "tandem/metrics/kept_rows.h"
#include "tandem/metrics/sink.h"

namespace tandem {

class CsvSink final : public Sink {
 public:
  explicit CsvSink(const SinkOptions& options);
  std::string resume(int64_t last) override;
  void write(const StepRecord& record) override;
  void sync() override;

 private:
  RowFormat format();

  std::filesystem::path path_;
  CsvColumns columns_;
  CountedIn unit_;
  bool expected_;
  bool known_columns_ = false;  // they are those of a file that goes on
  std::optional<AppendFile> file_;
};

}  // namespace tandem
