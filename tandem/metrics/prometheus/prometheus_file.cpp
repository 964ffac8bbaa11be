#include "tandem/metrics/prometheus/prometheus_file.h"

#include <fstream>
#include <system_error>
#include <utility>

#include "tandem/base/error.h"

namespace tandem {
namespace {

constexpr auto kBetween = std::chrono::seconds(5);  // the node exporter is scraped less often

}  // namespace

PrometheusFile::PrometheusFile(std::filesystem::path path, const SinkOptions& options)
    : path_(std::move(path)),
      run_dir_(options.run_dir),
      num_ranks_(options.num_ranks),
      places_(options.places) {
  figures_.begin(run_dir_);
}

std::string PrometheusFile::resume(int64_t) {
  write_file();
  return "";
}

void PrometheusFile::write(const StepRecord& record) {
  figures_.add(record);
  if (std::chrono::steady_clock::now() - written_ >= kBetween) write_file();
}

void PrometheusFile::write_file() {
  written_ = std::chrono::steady_clock::now();
  figures_.ranks = read_rank_figures(run_dir_, figures_of(0, figures_.record), num_ranks_);
  if (places_) figures_.places = places_();
  const std::filesystem::path draft = path_.string() + ".new";  // which the collector does not read
  std::ofstream file(draft, std::ios::trunc);
  file << prometheus_text(figures_, PrometheusFormat::Plain);
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(draft, path_, error);
  if (file && !error) return;
  std::filesystem::remove(draft, error);
  throw IoError("{}: cannot be written", path_.string());
}

}  // namespace tandem
