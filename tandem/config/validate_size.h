// Whether a step can be counted and compiled at all: keys that are each in range may have products that no 64
// bits hold, or make a graph that takes the compiler's machine all its memory. What is refused here is far
// above what was ever trained; whether a step fits in memory is told later, by its plan.
#pragma once

#include "tandem/config/load.h"

namespace tandem {

void validate_size(const ResolvedConfig& resolved);  // throws ConfigError

}  // namespace tandem
