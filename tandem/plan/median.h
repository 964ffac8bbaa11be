// The middle one of some measurements.
#pragma once

#include <algorithm>
#include <vector>

namespace tandem::plan {

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tandem::plan
