// The figures of /metrics as a file, for the textfile collector of Prometheus's node exporter: nothing has to
// reach this process. Written anew every few seconds, whole or not at all.
#pragma once

#include <chrono>

#include "tandem/metrics/prometheus/prometheus_text.h"
#include "tandem/metrics/sink.h"

namespace tandem {

class PrometheusFile final : public Sink {
 public:
  PrometheusFile(std::filesystem::path path, const SinkOptions& options);
  std::string resume(int64_t last) override;
  void write(const StepRecord& record) override;
  void sync() override {}
  void finish() override { write_file(); }

 private:
  void write_file();

  std::filesystem::path path_, run_dir_;
  int num_ranks_;
  std::function<std::string()> places_;
  RunFigures figures_;
  std::chrono::steady_clock::time_point written_;
};

}  // namespace tandem
