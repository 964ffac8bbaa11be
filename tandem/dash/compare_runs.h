// Two runs beside each other: what they reached, how fast, whether their losses are the same and from where
// on not, and the keys of their configs that differ.
#pragma once

#include "tandem/dash/run_folder.h"

namespace tandem::dash {

// {runs: [{id, state, step, loss, ...}, ...], steps: {common, first_different}, loss: {mean_a, mean_b,
// steps},
//  config: [{key, a, b}]}
Json compare_runs(const RunFolder& a, const RunFolder& b);
std::string comparison_text(const Json& comparison);

// A column of metrics.jsonl of each. Throws DataError where neither has it.
std::string plot_runs(const RunFolder& a, const RunFolder& b, const std::string& name, int width,
                      bool colored);

}  // namespace tandem::dash
