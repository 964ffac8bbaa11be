#include "tandem/metrics/prometheus/prometheus_text.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "tandem/base/system.h"
#include "tandem/metrics/offline/run_name.h"

namespace tandem {
namespace {

// Backslashes, quotes and line ends would end a label.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    result += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return result;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

using Labels = std::vector<std::pair<std::string_view, std::string>>;
struct Sample {
  Labels labels;
  double value;
};

class Page {
 public:
  Page(std::string run, PrometheusFormat format) : run_(std::move(run)), format_(format) {}

  void gauge(std::string_view name, std::string_view help, const std::vector<Sample>& samples) {
    add(name, name, "gauge", help, samples);
  }
  void gauge(std::string_view name, std::string_view help, double value) { gauge(name, help, {{{}, value}}); }
  // `name` is without the _total that every counter's sample ends with.
  void counter(std::string_view name, std::string_view help, double value) {
    const std::string sample = fmt::format("{}_total", name);
    add(format_ == PrometheusFormat::OpenMetrics ? name : std::string_view(sample), sample, "counter", help,
        {{{}, value}});
  }
  std::string finish() {
    if (format_ == PrometheusFormat::OpenMetrics) text_ += "# EOF\n";
    return std::move(text_);
  }

 private:
  void add(std::string_view family, std::string_view name, std::string_view type, std::string_view help,
           const std::vector<Sample>& samples) {
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", family, help, family, type);
    for (const Sample& sample : samples) {
      text_ += fmt::format("{}{{run=\"{}\"", name, escaped(run_));
      for (const auto& [label, value] : sample.labels)
        text_ += fmt::format(",{}=\"{}\"", label, escaped(value));
      text_ += fmt::format("}} {}\n", number(sample.value));
    }
  }

  std::string run_;
  PrometheusFormat format_;
  std::string text_;
};

// A sample for each rank.
template <typename Get>
std::vector<Sample> by_rank(const RunFigures& figures, Get&& get) {
  std::vector<Sample> samples;
  for (const RankFigures& rank : figures.ranks)
    samples.push_back({{{"rank", std::to_string(rank.rank)}}, static_cast<double>(get(rank))});
  return samples;
}

void add_gpu(Page& page, const StepRecord& record) {
  const auto add = [&](std::string_view name, std::string_view help, const auto& value, double factor) {
    if (value) page.gauge(name, help, {{{{"rank", "0"}}, factor * static_cast<double>(*value)}});
  };
  add("tandem_gpu_busy_ratio", "Share of time in which the GPU had work.", record.gpu_busy_percent, 0.01);
  add("tandem_gpu_power_watts", "What the GPU draws.", record.gpu_power_w, 1);
  add("tandem_gpu_temperature_celsius", "Of the GPU.", record.gpu_temperature_c, 1);
  add("tandem_gpu_used_bytes", "Memory of the GPU that any process has.", record.gpu_used_bytes, 1);
}

// What the launcher of the ranks knows: where each is, whether it writes rows or not.
void add_launcher(Page& page, const RunFigures& figures) {
  if (figures.restarts)
    page.counter("tandem_launcher_restarts", "How often the launcher has started the ranks again.",
                 static_cast<double>(*figures.restarts));
  const auto places = nlohmann::json::parse(figures.places, nullptr, false);
  if (!places.is_array() || places.empty()) return;
  std::vector<Sample> states, since;
  for (const auto& place : places) {
    if (!place.is_object() || !place.value("rank", nlohmann::json()).is_number_integer()) continue;
    const std::string rank = std::to_string(place["rank"].get<int64_t>());
    if (place.value("state", nlohmann::json()).is_string())
      states.push_back({{{"rank", rank}, {"state", place["state"]}}, 1});
    if (place.value("since_s", nlohmann::json()).is_number())
      since.push_back({{{"rank", rank}}, place["since_s"]});
  }
  page.gauge("tandem_rank_state", "1 for the state that the launcher sees a rank in.", states);
  page.gauge("tandem_rank_command_seconds", "How long a rank has been in its command.", since);
}

}  // namespace

PrometheusFormat wanted_format(std::string_view accept) {
  return accept.find("application/openmetrics-text") != std::string_view::npos ? PrometheusFormat::OpenMetrics
                                                                               : PrometheusFormat::Plain;
}

std::string_view content_type(PrometheusFormat format) {
  return format == PrometheusFormat::OpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

std::string prometheus_text(const RunFigures& figures, PrometheusFormat format) {
  Page page(figures.run, format);
  const StepRecord& record = figures.record;
  page.gauge("tandem_ranks", "Ranks whose figures are here.", static_cast<double>(figures.ranks.size()));
  add_launcher(page, figures);
  if (record.step == 0) return page.finish();
  page.gauge("tandem_step", "Steps done.", static_cast<double>(record.step));
  page.gauge("tandem_epoch", "Passes over the data that are done.", static_cast<double>(record.epoch));
  page.gauge("tandem_loss", "Training loss of the last step.", record.loss);
  if (figures.eval_loss) page.gauge("tandem_eval_loss", "Loss on held-out data.", *figures.eval_loss);
  if (figures.eval_accuracy)
    page.gauge("tandem_eval_accuracy_ratio", "Accuracy on held-out data.", *figures.eval_accuracy);
  page.gauge("tandem_learning_rate", "Of the last step.", record.lr);
  page.gauge("tandem_gradient_norm", "Before clipping.", record.grad_norm);
  page.gauge("tandem_loss_scale", "Of fp16; else 1.", record.loss_scale);
  const bool tokens = record.unit == CountedIn::Tokens;
  page.counter(tokens ? "tandem_tokens" : "tandem_samples", "Trained on so far.",
               static_cast<double>(record.count));
  page.gauge(tokens ? "tandem_tokens_per_second" : "tandem_samples_per_second", "Of the last step.",
             record.per_s);
  page.gauge("tandem_mfu_ratio", "Model FLOPs of the last step over the peak.", record.mfu);
  page.gauge("tandem_last_step_timestamp_seconds", "When the last step ended.", figures.wall_s);
  page.gauge("tandem_rank_step", "The rank's last step.",
             by_rank(figures, [](const auto& r) { return r.step; }));
  page.gauge("tandem_step_seconds", "Time of the last step.",
             by_rank(figures, [](const auto& r) { return r.step_ms / 1e3; }));
  page.gauge("tandem_data_wait_seconds", "Of that, wait for data.",
             by_rank(figures, [](const auto& r) { return r.data_wait_ms / 1e3; }));
  if (figures.ranks.size() > 1) {
    page.gauge("tandem_comm_wait_seconds", "In the last step, wait for other ranks.",
               by_rank(figures, [](const auto& r) { return r.comm_wait_ms / 1e3; }));
  }
  std::vector<Sample> memory;
  for (const RankFigures& rank : figures.ranks) {
    const std::string name = std::to_string(rank.rank);
    memory.push_back({{{"rank", name}, {"category", "resident"}}, static_cast<double>(rank.rss_bytes)});
    memory.push_back({{{"rank", name}, {"category", "device"}}, static_cast<double>(rank.device_bytes)});
  }
  page.gauge("tandem_memory_bytes", "Memory that a rank has: resident on the host, and of its device.",
             memory);
  add_gpu(page, record);
  return page.finish();
}

void RunFigures::begin(const std::filesystem::path& run_dir) {
  run = run_name(run_dir);
  const std::string count = from_environment("TORCHELASTIC_RESTART_COUNT", "");
  if (!count.empty()) restarts = std::atoll(count.c_str());
}

void RunFigures::add(const StepRecord& row) {
  record = row;
  if (row.eval_loss) eval_loss = row.eval_loss;
  if (row.eval_accuracy) eval_accuracy = row.eval_accuracy;
  wall_s = unix_s();
}

}  // namespace tandem
