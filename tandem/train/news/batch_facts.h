// Which samples a step was trained on, so that whoever looks into a loss that went wrong finds them.
#pragma once

#include <nlohmann/json.hpp>

#include "tandem/data/loader.h"
#include "tandem/train/step_runner.h"

namespace tandem {

inline constexpr int64_t kMostSamplesTold = 1024;

// {first_sample, num_samples, samples}: the global number of the batch's first one, how many, and the index
// of each in data.train (of several sets, one behind the other), of the first kMostSamplesTold.
nlohmann::json batch_facts(const Loader& loader, const StepResult& result);

}  // namespace tandem
