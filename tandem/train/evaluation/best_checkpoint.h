// The alias of the best checkpoint, when a run goes on.
#pragma once

#include <filesystem>

#include "tandem/train/evaluation/eval_watch.h"

namespace tandem {

// A save that was killed may have been the best; going back to an older checkpoint makes an older one it.
void mend_best(const std::filesystem::path& checkpoints, const EvalWatch& watch);

}  // namespace tandem
