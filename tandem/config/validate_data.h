// Whether the data sets that a config names can be what its model takes: known before anything is opened, so
// that `plan` and `explain` refuse the same as `train`.
#pragma once

#include "tandem/config/load.h"

namespace tandem {

void validate_data(const ResolvedConfig& resolved);  // throws ConfigError

}  // namespace tandem
