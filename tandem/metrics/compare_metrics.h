// Whether two runs have the same history: every step's numbers, but for times, speeds and memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tandem {

struct MetricsComparison {
  int64_t common = 0;  // steps in both
  int64_t alone = 0;   // steps before or after all of the other's: a run may begin from a checkpoint
  std::vector<std::string> differences;  // "step 57: loss 1.25 and 1.5"; gaps and steps that come twice, too
};

// Of two metrics.jsonl. Throws DataError naming a line that is no step.
MetricsComparison compare_metrics(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace tandem
