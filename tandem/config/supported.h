// Settings that are right but that this version cannot honour. Refusing them here is what keeps every
// other layer free of silent fallbacks; whoever adds a feature removes its row.
#pragma once

#include "tandem/config/load.h"

namespace tandem {

void check_supported(const ResolvedConfig& resolved);

}  // namespace tandem
