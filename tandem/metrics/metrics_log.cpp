#include "tandem/metrics/metrics_log.h"

#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/system.h"

namespace tandem {

MetricsLog::MetricsLog(std::vector<std::unique_ptr<Sink>> sinks, int64_t resume_step)
    : sinks_(std::move(sinks)), last_step_(resume_step) {
  for (const auto& sink : sinks_) {
    std::string problem = sink->resume(resume_step);
    if (!problem.empty()) problems_.push_back(std::move(problem));
  }
}

void MetricsLog::write(StepRecord record) {
  TANDEM_CHECK(record.step > last_step_, "step {} after step {}", record.step, last_step_);
  last_step_ = record.step;
  if (record.time.empty()) record.time = utc_time();
  for (const auto& sink : sinks_) sink->write(record);
}

void MetricsLog::write_histograms(const std::vector<Histogram>& histograms) {
  for (const auto& sink : sinks_) sink->write_histograms(last_step_, histograms);
}

void MetricsLog::finish() {
  for (const auto& sink : sinks_) sink->finish();
}

void MetricsLog::sync() {
  for (const auto& sink : sinks_) sink->sync();
}

}  // namespace tandem
