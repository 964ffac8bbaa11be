// Fills in the values that follow from others when the user left them out, and notes from which.
// Needs before: values decoded and in range. Needs after: validate.
#pragma once

#include "tandem/config/load.h"

namespace tandem {

void derive(ResolvedConfig& resolved, int num_ranks = 1);

}  // namespace tandem
