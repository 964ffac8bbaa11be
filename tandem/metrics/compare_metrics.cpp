#include "tandem/metrics/compare_metrics.h"

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"

namespace tandem {
namespace {

// What a step computed; the rest of a record says how fast, and on what.
constexpr const char* kComputed[] = {"epoch",      "loss",   "lr",        "grad_norm",
                                     "loss_scale", "tokens", "eval_loss", "eval_accuracy"};

std::map<int64_t, nlohmann::json> read_steps(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw DataError("{}: cannot be read; expected the metrics of a run", path.string());
  std::map<int64_t, nlohmann::json> steps;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer())
      throw DataError("{}: line {} is no step of a run", path.string(), number);
    const auto step = record["step"].get<int64_t>();
    steps[step] = std::move(record);
  }
  return steps;
}

}  // namespace

MetricsComparison compare_metrics(const std::filesystem::path& a, const std::filesystem::path& b) {
  const std::map<int64_t, nlohmann::json> first = read_steps(a), second = read_steps(b);
  MetricsComparison result;
  for (const auto& [step, record] : first) {
    const auto other = second.find(step);
    if (other == second.end()) {
      ++result.alone;
      continue;
    }
    ++result.common;
    for (const char* key : kComputed) {
      const nlohmann::json x = record.value(key, nlohmann::json()),
                           y = other->second.value(key, nlohmann::json());
      if (x != y)
        result.differences.push_back(fmt::format("step {}: {} {} and {}", step, key, x.dump(), y.dump()));
    }
  }
  for (const auto& [step, record] : second) {
    if (!first.contains(step)) ++result.alone;
  }
  return result;
}

}  // namespace tandem
