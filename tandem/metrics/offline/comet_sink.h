// comet/KEY.zip: the rows for Comet, as its own client writes an offline experiment: messages.json, a line
// for each number of each row, and experiment.json. `comet upload` takes the archive, whole, at any time. A
// resumed run goes on in the same archive, behind what it keeps of it.
#pragma once

#include <string>

#include "tandem/metrics/growing_file.h"
#include "tandem/metrics/sink.h"

namespace tandem {

class CometSink final : public Sink {
 public:
  explicit CometSink(const SinkOptions& options);
  std::string resume(int64_t last) override;
  void write(const StepRecord& record) override;
  void sync() override { file_.sync(); }

 private:
  void add(const std::string& lines, int64_t wall_ms);
  std::string facts() const;  // the lines of the run's name and config

  std::filesystem::path folder_;
  std::string name_, config_;
  bool expected_;
  std::string key_;
  int64_t start_ms_ = 0;  // since 1970
  uint64_t bytes_ = 0;    // of messages.json
  uint32_t crc_ = 0;
  std::string tail_;  // what the archive has behind them
  GrowingFile file_;
};

}  // namespace tandem
