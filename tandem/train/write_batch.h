// A micro-batch on its way into a session.
#pragma once

#include <optional>
#include <string_view>

#include "tandem/data/loader.h"
#include "tandem/runtime/session.h"

namespace tandem {

// Copies a micro-batch into the inputs of an executable: "tokens", "images", "targets", "segments",
// "positions", as far as it has them, and the number of its first sample. A pipeline's has those of several
// micro-batches (compile/passes/unroll.h): `place` says which.
void write_batch(Session& session, const Executable& executable, const MicroBatch& batch,
                 std::optional<int> place = {});

// Writes an input that only some ranks' executables have.
void write_if_there(Session& session, const Executable& executable, std::string_view input,
                    std::span<const std::byte> bytes);

}  // namespace tandem
