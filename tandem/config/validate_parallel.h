// Refuses strategies, axes and schedules that cannot work together or with the model, each with the nearest
// that can. How many ranks were really started is the business of whoever starts them.
// Needs before: the rest of validate (train.batch is a multiple of train.micro_batch * parallel.data).
#pragma once

#include "tandem/config/load.h"

namespace tandem {

inline constexpr int64_t kMaxRanks = 1 << 20;  // of a mesh, planned or real: its products fit in an int

void validate_parallel(const ResolvedConfig& resolved);

}  // namespace tandem
