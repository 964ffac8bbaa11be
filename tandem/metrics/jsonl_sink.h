// A file of JSON objects, a line for each step: metrics.jsonl, and logs/rank-<n>.jsonl of each of many ranks.
#pragma once

#include <functional>
#include <optional>

#include "tandem/metrics/append_file.h"
#include "tandem/metrics/sink.h"

namespace tandem {

class JsonlSink final : public Sink {
 public:
  explicit JsonlSink(const SinkOptions& options);  // RUN/metrics.jsonl

  // `row` gives a line that begins with {"step":N, as jsonl_row does.
  using Row = std::function<std::string(const StepRecord&)>;
  JsonlSink(std::filesystem::path path, Row row, bool expected);

  std::string resume(int64_t last) override;
  void write(const StepRecord& record) override;
  void sync() override;

 private:
  std::filesystem::path path_;
  Row row_;
  bool expected_;
  std::optional<AppendFile> file_;
};

}  // namespace tandem
