#include "tandem/pipeline/curve.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

namespace tandem::pipeline {
namespace {

using PlainJson = nlohmann::json;

constexpr int64_t kRowsBytes = 8192;  // several rows

double number_of(const PlainJson& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number() ? found->get<double>()
                                                  : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

Curve read_curve(const std::filesystem::path& run) {
  Curve curve;
  std::ifstream stream(run / "metrics.jsonl", std::ios::binary);
  for (std::string line; std::getline(stream, line);) {
    const PlainJson row = PlainJson::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) continue;
    curve.steps.push_back(row["step"].get<int64_t>());
    curve.losses.push_back(number_of(row, "loss"));
    if (row.contains("eval_loss")) curve.evals.emplace_back(curve.steps.back(), number_of(row, "eval_loss"));
  }
  return curve;
}

int64_t last_step(const std::filesystem::path& run) {
  std::ifstream stream(run / "metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!stream) return 0;
  stream.seekg(std::max<int64_t>(0, static_cast<int64_t>(stream.tellg()) - kRowsBytes));
  int64_t last = 0;
  for (std::string line; std::getline(stream, line);) {
    const PlainJson row = PlainJson::parse(line, nullptr, false);  // the first may be a part of one
    if (row.is_object() && row.contains("step") && row["step"].is_number_integer())
      last = row["step"].get<int64_t>();
  }
  return last;
}

bool has_eval_at(const Curve& curve, int64_t step) {
  return !curve.evals.empty() && curve.evals.front().first <= step;
}

double score_at(const Curve& curve, int64_t step, bool by_eval) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  if (by_eval) {
    double last = kNone;
    for (const auto& [at, loss] : curve.evals) last = at <= step ? loss : last;
    return std::isfinite(last) ? last : kNone;
  }
  const int64_t begin = step - std::max<int64_t>(1, step / 10);
  double sum = 0;
  int64_t count = 0;
  for (size_t at = 0; at < curve.steps.size(); ++at) {
    if (curve.steps[at] <= begin || curve.steps[at] > step) continue;
    sum += curve.losses[at];
    ++count;
  }
  return count > 0 && std::isfinite(sum) ? sum / static_cast<double>(count) : kNone;
}

}  // namespace tandem::pipeline
