// How a run stands, for the terminal: what its status.json says, and whether that is still true.
#pragma once

#include "tandem/dash/run_folder.h"

namespace tandem::dash {

// What status.json has (docs/interface.md), with `alive`: whether a process trains there, as far as this
// machine can tell, else null. A run whose process is gone without a word is `killed`; of a run on another
// machine that has not said anything for a while the state is `silent`. Of a run without status.json, what
// its other files say. Throws DataError where there is no run.
Json run_status(const RunFolder& run);

std::string status_text(const Json& status);

// Whether nothing more will come of it.
bool has_ended(const Json& status);

}  // namespace tandem::dash
