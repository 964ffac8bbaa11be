// A number for steps of the run: points of a curve over them, or stretches that end at them.
#pragma once

#include <cstdint>

namespace tandem {

struct StepValue {
  int64_t step = 0;
  double value = 0;
  bool operator==(const StepValue&) const = default;
};

}  // namespace tandem
