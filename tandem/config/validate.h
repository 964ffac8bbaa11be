// Refuses values that do not go together, each with the nearest that do. One key's own range and type
// are the business of the table of keys.
#pragma once

#include "tandem/config/load.h"

namespace tandem {

void validate(const ResolvedConfig& resolved);

// The start of a message about `key`: "config.yaml:12: train.batch", "--set train.batch", or the bare key
// when it was never given.
std::string place_of(const ResolvedConfig& resolved, std::string_view key);

}  // namespace tandem
