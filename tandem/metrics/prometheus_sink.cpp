#include "tandem/metrics/prometheus_sink.h"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <utility>

namespace tandem {
namespace {

constexpr std::streamoff kTail = 1024;  // some rows of a rank

std::string tail_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg();
  std::string text(static_cast<size_t>(std::min(size, kTail)), '\0');
  file.seekg(size - static_cast<std::streamoff>(text.size()));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  const size_t end = text.rfind('\n');
  return end == std::string::npos ? "" : text.substr(0, end);  // without a row that is half written
}

}  // namespace

PrometheusSink::PrometheusSink(const std::string& address, const SinkOptions& options)
    : run_dir_(options.run_dir),
      num_ranks_(options.num_ranks),
      address_(http::parse_address(address, "log.prometheus")) {
  figures_.run = std::filesystem::absolute(run_dir_).lexically_normal().filename().string();
}

std::string PrometheusSink::resume(int64_t) {
  server_ = std::make_unique<http::Server>(address_,
                                           [this](const http::Request& request) { return answer(request); });
  address_ = server_->address();
  return "";
}

void PrometheusSink::write(const StepRecord& record) {
  const std::lock_guard lock(mutex_);
  figures_.record = record;
  if (record.eval_loss) figures_.eval_loss = record.eval_loss;
  if (record.eval_accuracy) figures_.eval_accuracy = record.eval_accuracy;
  figures_.wall_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
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
  const StepRecord& own = figures.record;
  figures.ranks.push_back({0, own.step, own.step_ms, own.data_wait_ms, own.rss_bytes, own.device_bytes});
  for (int rank = 1; rank < num_ranks_; ++rank) {
    const auto found = rank_figures(rank, tail_of(run_dir_ / "logs" / fmt::format("rank-{}.jsonl", rank)));
    if (found) figures.ranks.push_back(*found);
  }
  const PrometheusFormat format = wanted_format(request.header("accept"));
  response.type = content_type(format);
  response.body = prometheus_text(figures, format);
  return response;
}

}  // namespace tandem
