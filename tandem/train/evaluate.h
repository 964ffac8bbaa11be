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
  int64_t targets = 0;
};

inline constexpr int64_t kOneMicroBatch = -1;

// Copies a micro-batch into the inputs of an executable: "tokens", or "tokens.<place>" of a pipeline's.
void write_batch(Session& session, const Executable& executable, const MicroBatch& batch,
                 int64_t place = kOneMicroBatch);

// Writes an input that only some ranks' executables have.
void write_if_there(Session& session, const Executable& executable, std::string_view input,
                    std::span<const std::byte> bytes);

// The samples of the loader's single pass, each once, whichever rank takes it. All ranks call it together.
EvalResult evaluate(Session& session, Loader& loader, const World& world = {});

}  // namespace tandem
