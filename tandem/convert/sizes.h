// How many ranks there are and how a batch is shared among them. Other programs give the batch of one rank
// and pass, and the rest follows; ours is the global batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/convert/draft.h"

namespace tandem::convert {

struct Sizes {
  std::optional<int64_t> ranks = {};         // all that the file, or --ranks, says there are
  std::optional<int64_t> batch = {};         // global
  std::optional<int64_t> micro_batch = {};   // of a rank in one pass
  std::optional<int64_t> accumulation = {};  // passes a step
  int64_t tensor = 1, pipeline = 1;
};

// Sets parallel.{data,tensor,pipeline} and train.{batch,micro_batch}, and says what it had to assume. Throws
// ConfigError, starting with `file`, where the numbers contradict each other.
void set_sizes(const Sizes& sizes, const std::string& file, Draft& draft);

}  // namespace tandem::convert
