// Whether a set of samples is the one it was: its size and a digest of some samples, evenly spread, so that
// the largest set takes no longer than a small one. An edit between those is not seen.
#pragma once

#include <string>

#include "tandem/data/dataset.h"

namespace tandem {

std::string fingerprint(const Dataset& dataset);  // "1234 samples, <32 hex digits>"

}  // namespace tandem
