// metrics.jsonl and metrics.csv of a run: each step exactly once, in order, whatever was killed in between.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tandem/metrics/append_file.h"
#include "tandem/metrics/kept_rows.h"
#include "tandem/metrics/step_record.h"

namespace tandem {

class MetricsLog {
 public:
  struct Files {
    bool jsonl = true;
    bool csv = true;
    CsvColumns columns = CsvColumns::Plain;  // of a new metrics.csv; one that goes on keeps its own
    Unit unit = Unit::Tokens;                // of its rows
    bool expected = true;                    // to hold all rows up to the step resumed from
  };

  // Drops the rows of steps after `resume_step` (all of them for 0, a fresh start) and a half-written last
  // row, then goes on behind what is left. The directory must exist.
  MetricsLog(const std::filesystem::path& run_dir, Files files, int64_t resume_step);

  // A sentence for each file in which rows up to the step that was resumed from were damaged or missing.
  const std::vector<std::string>& problems() const { return problems_; }

  void write(StepRecord record);  // the row can be read by others when this returns

  // Returns when all rows are on disk. Called before a checkpoint is saved, so that a power cut cannot leave
  // a checkpoint of a step whose rows are lost.
  void sync();

 private:
  RowFormat csv_format();

  std::optional<AppendFile> jsonl_;
  std::optional<AppendFile> csv_;
  CsvColumns columns_;
  Unit unit_;
  bool known_columns_ = false;  // they are those of a file that goes on
  std::vector<std::string> problems_;
  int64_t last_step_;
};

}  // namespace tandem
