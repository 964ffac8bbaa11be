// All that a page shows of one run beside its curves.
#pragma once

#include "tandem/dash/run_folder.h"

namespace tandem::dash {

// {config: [{key, value, doc, default}], history, summary, plan, events, checkpoints, ranks}
Json run_detail(const RunFolder& run);

}  // namespace tandem::dash
