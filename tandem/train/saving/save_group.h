// The ranks of a run as writers of one checkpoint.
#pragma once

#include "tandem/checkpoint/writer.h"
#include "tandem/train/world.h"

namespace tandem {

// All ranks ask together, each with the bytes of a save that are its own; `world` must outlive it.
SaveGroup save_group(const World& world, int64_t bytes);

}  // namespace tandem
