// The losses of a run as its metrics.jsonl has them, for comparing runs that are not at their end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tandem::pipeline {

struct Curve {
  std::vector<int64_t> steps;
  std::vector<double> losses;
  std::vector<std::pair<int64_t, double>> evals;  // step and eval_loss

  int64_t last_step() const { return steps.empty() ? 0 : steps.back(); }
};

Curve read_curve(const std::filesystem::path& run);   // a run that has not begun has an empty one
int64_t last_step(const std::filesystem::path& run);  // the same's, from the end of the file alone

// What a trial had reached by a step: its last eval_loss if `by_eval`, else the mean loss of the tenth of the
// steps before it. Infinite where it has none, or none that is finite.
double score_at(const Curve& curve, int64_t step, bool by_eval);
bool has_eval_at(const Curve& curve, int64_t step);

}  // namespace tandem::pipeline
