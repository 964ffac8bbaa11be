// The rows of a run: each step exactly once, in order, to every sink, whatever was killed in between.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/metrics/sink.h"

namespace tandem {

class MetricsLog {
 public:
  // All sinks go on behind `resume_step`; 0 is a fresh start.
  MetricsLog(std::vector<std::unique_ptr<Sink>> sinks, int64_t resume_step);

  // A sentence for each sink in which rows up to the step that was resumed from were damaged or missing.
  const std::vector<std::string>& problems() const { return problems_; }

  void write(StepRecord record);  // the row can be read by others when this returns

  // Returns when all rows are on disk. Called before a checkpoint is saved, so that a power cut cannot leave
  // a checkpoint of a step whose rows are lost.
  void sync();
  void write_histograms(const std::vector<Histogram>& histograms);  // of the last row's step
  void finish();                                                    // the run has reached its end

 private:
  std::vector<std::unique_ptr<Sink>> sinks_;
  std::vector<std::string> problems_;
  int64_t last_step_;
};

}  // namespace tandem
