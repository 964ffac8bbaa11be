// Held-out loss of the weights in a session.
#pragma once

#include <optional>

#include "tandem/data/loader.h"
#include "tandem/runtime/session.h"
#include "tandem/train/world.h"

namespace tandem {

struct EvalResult {
  double loss = 0;      // mean over the targets that count
  double accuracy = 0;  // share of them that the most likely class hits
  // Share of them that are among the five most likely classes; of images, where there are more classes and
  // one rank has all logits.
  std::optional<double> top5 = {};
  int64_t targets = 0;
};

// The samples of the loader's single pass, each once, whichever rank takes it: the same bits on any number of
// ranks. All ranks call it together.
EvalResult evaluate(Session& session, Loader& loader, const World& world = {});

}  // namespace tandem
