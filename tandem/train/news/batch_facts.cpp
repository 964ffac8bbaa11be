#include "tandem/train/news/batch_facts.h"

#include <algorithm>

namespace tandem {

nlohmann::json batch_facts(const Loader& loader, const StepResult& result) {
  nlohmann::json samples = nlohmann::json::array();
  for (int64_t i = 0; i < std::min(result.samples, kMostSamplesTold); ++i)
    samples.push_back(loader.sampler().index(result.first_sample + i));
  return {{"first_sample", result.first_sample},
          {"num_samples", result.samples},
          {"samples", std::move(samples)}};
}

}  // namespace tandem
