// Serves /metrics for Prometheus while the run trains: the newest figures, of every rank. What others write
// to logs/rank-<n>.jsonl is read when somebody asks, so that a step costs nothing more.
//
// It keeps no rows, so the promise of each step once means nothing to it: Prometheus takes what it finds.
#pragma once

#include <memory>
#include <mutex>

#include "tandem/http/server.h"
#include "tandem/metrics/prometheus/prometheus_text.h"
#include "tandem/metrics/sink.h"

namespace tandem {

class PrometheusSink final : public Sink {
 public:
  // Throws ConfigError where `address` is none.
  PrometheusSink(const std::string& address, const SinkOptions& options);

  std::string resume(int64_t last) override;  // listens; throws ListenError where the port is taken
  void write(const StepRecord& record) override;
  void sync() override {}

  const http::Address& address() const { return address_; }  // with its port, once it listens

 private:
  http::Response answer(const http::Request& request);

  std::filesystem::path run_dir_;
  int num_ranks_;
  std::function<std::string()> places_;
  http::Address address_;
  std::mutex mutex_;
  RunFigures figures_;
  std::unique_ptr<http::Server> server_;  // last: its thread asks for the others
};

}  // namespace tandem
