#include "tandem/metrics/prometheus/prometheus_sink.h"

#include <utility>

namespace tandem {
PrometheusSink::PrometheusSink(const std::string& address, const SinkOptions& options)
    : run_dir_(options.run_dir),
      num_ranks_(options.num_ranks),
      places_(options.places),
      address_(http::parse_address(address, "log.prometheus")) {
  figures_.begin(run_dir_);
}

std::string PrometheusSink::resume(int64_t) {
  server_ = std::make_unique<http::Server>(address_,
                                           [this](const http::Request& request) { return answer(request); });
  address_ = server_->address();
  return "";
}

void PrometheusSink::write(const StepRecord& record) {
  const std::lock_guard lock(mutex_);
  figures_.add(record);
}

http::Response PrometheusSink::answer(const http::Request& request) {
  http::Response response;
  if (request.path != "/metrics") {
    response.status = 404;
    response.body = "metrics are at /metrics\n";
    return response;
  }
  RunFigures figures;
  {
    const std::lock_guard lock(mutex_);
    figures = figures_;
  }
  figures.ranks = read_rank_figures(run_dir_, figures_of(0, figures.record), num_ranks_);
  if (places_) figures.places = places_();
  const PrometheusFormat format = wanted_format(request.header("accept"));
  response.type = content_type(format);
  response.body = prometheus_text(figures, format);
  return response;
}

}  // namespace tandem
