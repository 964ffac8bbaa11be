// tensorboard/events.out.tfevents.*: the curves of metrics.jsonl for TensorBoard, under the same names.
//
// Each start of a run is a file of its own, as TensorBoard expects. A resumed run cuts what earlier files say
// of steps that it takes again, so that any reader finds each step once; and the new file's first event says
// from which step on it counts, so that a TensorBoard that is looking on forgets what it has read of them.
#pragma once

#include "tandem/metrics/growing_file.h"
#include "tandem/metrics/sink.h"

namespace tandem {

class TensorboardSink final : public Sink {
 public:
  explicit TensorboardSink(const SinkOptions& options);
  std::string resume(int64_t last) override;
  void write(const StepRecord& record) override;
  void sync() override;
  void write_histograms(int64_t step, const std::vector<Histogram>& histograms) override;

 private:
  void begin_file(int64_t last, int64_t number);

  std::filesystem::path folder_;
  std::string config_;
  bool expected_;
  GrowingFile file_;
};

}  // namespace tandem
