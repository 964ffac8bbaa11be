#include "tandem/metrics/compare_metrics.h"

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/base/json_text.h"

namespace tandem {
namespace {

// What a step computed; the rest of a record says how fast, and on what.
constexpr const char* kComputed[] = {"epoch",  "loss",    "lr",        "grad_norm",    "loss_scale",
                                     "tokens", "samples", "eval_loss", "eval_accuracy"};

using Steps = std::map<int64_t, nlohmann::json>;

Steps read_steps(const std::filesystem::path& path, std::vector<std::string>& differences) {
  require_regular(path);
  std::ifstream file(path);
  if (!file) throw DataError("{}: cannot be read; expected the metrics of a run", path.string());
  Steps steps;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    check_json_depth(line, fmt::format("{}: line {}", path.string(), number));
    nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer())
      throw DataError("{}: line {} is no step of a run", path.string(), number);
    const auto step = record["step"].get<int64_t>();
    if (!steps.insert_or_assign(step, std::move(record)).second)
      differences.push_back(fmt::format("step {}: comes twice in {}", step, path.string()));
  }
  return steps;
}

// Steps of `steps` that `other` lacks: a gap in it, or outside of what it has.
void compare_extent(const Steps& steps, const Steps& other, const std::filesystem::path& other_path,
                    MetricsComparison& result) {
  for (const auto& [step, record] : steps) {
    if (other.contains(step)) continue;
    if (other.empty() || step < other.begin()->first || step > other.rbegin()->first) {
      ++result.alone;
    } else {
      result.differences.push_back(fmt::format("step {}: missing in {}", step, other_path.string()));
    }
  }
}

}  // namespace

MetricsComparison compare_metrics(const std::filesystem::path& a, const std::filesystem::path& b) {
  MetricsComparison result;
  const Steps first = read_steps(a, result.differences), second = read_steps(b, result.differences);
  for (const auto& [step, record] : first) {
    const auto other = second.find(step);
    if (other == second.end()) continue;
    ++result.common;
    for (const char* key : kComputed) {
      const nlohmann::json x = record.value(key, nlohmann::json()),
                           y = other->second.value(key, nlohmann::json());
      if (x != y)
        result.differences.push_back(fmt::format("step {}: {} {} and {}", step, key, x.dump(), y.dump()));
    }
  }
  compare_extent(first, second, b, result);
  compare_extent(second, first, a, result);
  return result;
}

}  // namespace tandem
