// Refuses values that do not go together, each with the nearest that do. One key's own range and type
// are the business of the table of keys.
#pragma once

#include "tandem/config/load.h"

namespace tandem {

void validate(const ResolvedConfig& resolved);

}  // namespace tandem
