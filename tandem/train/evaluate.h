// Held-out loss of the weights in a session.
#pragma once

#include <optional>

#include "tandem/data/loader.h"
#include "tandem/runtime/session.h"

namespace tandem {

struct EvalResult {
  double loss = 0;      // mean over the targets that count
  double accuracy = 0;  // share of them that the most likely class hits
  int64_t targets = 0;
};

// Copies one micro-batch into the inputs of an executable.
void write_batch(Session& session, const Executable& executable, const MicroBatch& batch);

// The first `samples` of the set, rounded up to whole micro-batches; 0 = all of it.
EvalResult evaluate(Session& session, Loader& loader, int64_t samples, int64_t micro_batch);

}  // namespace tandem
