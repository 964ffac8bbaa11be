// Parameters that are trained unlike the others, found by their names.
#pragma once

#include <string>

namespace tandem {

// Of several that match a parameter, the first counts.
struct TrainGroup {
  std::string match;    // glob: "embed.*", "*.bias"
  double lr = 1;        // factor of the learning rate
  double decay = 1;     // factor of the weight decay
  bool frozen = false;  // not trained at all
  bool operator==(const TrainGroup&) const = default;
};

}  // namespace tandem
