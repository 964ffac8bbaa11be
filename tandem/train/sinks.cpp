#include "tandem/train/sinks.h"

#include "tandem/http/address.h"
#include "tandem/metrics/csv_sink.h"
#include "tandem/metrics/forgiving_sink.h"
#include "tandem/metrics/jsonl_sink.h"
#include "tandem/metrics/offline/comet_sink.h"
#include "tandem/metrics/offline/wandb_sink.h"
#include "tandem/metrics/online/wandb_online_sink.h"
#include "tandem/metrics/prometheus/prometheus_file.h"
#include "tandem/metrics/prometheus/prometheus_sink.h"
#include "tandem/metrics/tensorboard/tensorboard_sink.h"

namespace tandem {

void check_sinks(const LogConfig& log) {
  if (!log.prometheus.empty()) http::parse_address(log.prometheus, "log.prometheus");
  if (log.wandb == WandbMode::Online) wandb::access_of_environment();
}

// What a resume goes on with are metrics.jsonl and metrics.csv: where they cannot be written the run ends.
// Others may fail. A new sink is added here. One whose key is refused so far also loses its row in
// config/supported.cpp.
std::vector<std::unique_ptr<Sink>> make_sinks(const LogConfig& log, const SinkOptions& options) {
  std::vector<std::unique_ptr<Sink>> sinks;
  if (log.jsonl) sinks.push_back(std::make_unique<JsonlSink>(options));
  if (log.csv) sinks.push_back(std::make_unique<CsvSink>(options));
  const auto add_forgiven = [&](std::unique_ptr<Sink> sink) {
    sinks.push_back(std::make_unique<ForgivingSink>(std::move(sink), options.tell));
  };
  if (log.tensorboard) add_forgiven(std::make_unique<TensorboardSink>(options));
  if (log.wandb == WandbMode::Offline) add_forgiven(std::make_unique<WandbSink>(options));
  if (log.wandb == WandbMode::Online) add_forgiven(std::make_unique<WandbOnlineSink>(options));
  if (log.comet == CometMode::Offline) add_forgiven(std::make_unique<CometSink>(options));
  if (!log.prometheus.empty()) add_forgiven(std::make_unique<PrometheusSink>(log.prometheus, options));
  if (!log.prometheus_file.empty())
    add_forgiven(std::make_unique<PrometheusFile>(log.prometheus_file, options));
  return sinks;
}

}  // namespace tandem
