#include "tandem/train/sinks.h"

#include "tandem/metrics/csv_sink.h"
#include "tandem/metrics/jsonl_sink.h"

namespace tandem {

// A new sink is added here. One whose key is refused so far also loses its row in config/supported.cpp.
std::vector<std::unique_ptr<Sink>> make_sinks(const LogConfig& log, const SinkOptions& options) {
  std::vector<std::unique_ptr<Sink>> sinks;
  if (log.jsonl) sinks.push_back(std::make_unique<JsonlSink>(options));
  if (log.csv) sinks.push_back(std::make_unique<CsvSink>(options));
  return sinks;
}

}  // namespace tandem
