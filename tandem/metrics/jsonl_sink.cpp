#include "tandem/metrics/jsonl_sink.h"

#include <utility>

#include "tandem/metrics/kept_rows.h"

namespace tandem {

JsonlSink::JsonlSink(const SinkOptions& options)
    : JsonlSink(options.run_dir / "metrics.jsonl", jsonl_row, options.expected) {}

JsonlSink::JsonlSink(std::filesystem::path path, Row row, bool expected)
    : path_(std::move(path)), row_(std::move(row)), expected_(expected) {}

std::string JsonlSink::resume(int64_t last) {
  const RowFormat format{.step_of = jsonl_step, .is_header = {}, .header = {}};
  std::string problem = keep_rows(path_, format, last, expected_);
  file_.emplace(path_);
  return problem;
}

void JsonlSink::write(const StepRecord& record) { file_->append_line(row_(record)); }

void JsonlSink::sync() { file_->sync(); }

}  // namespace tandem
