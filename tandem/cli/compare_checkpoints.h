// `inspect --compare`: which tensors of two checkpoints differ, and by how much.
#pragma once

#include "tandem/checkpoint/manifest.h"

namespace tandem::cli {

// Prints a short table, the largest differences first, or with `all` the whole of it. True if there are none.
bool compare_checkpoints(const Manifest& a, const Manifest& b, bool all);

}  // namespace tandem::cli
