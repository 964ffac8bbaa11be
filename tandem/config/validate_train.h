// Checks of schedules, the length of a run, batches and evaluations.
#pragma once

#include "tandem/config/load.h"

namespace tandem {

// Throws ConfigError.
void validate_train(const ResolvedConfig& resolved);

}  // namespace tandem
