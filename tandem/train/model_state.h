// What of a session belongs into a checkpoint, and back. A parameter is saved under its own name in fp32,
// from its master where there is one, so that a checkpoint fits any precision; optimizer state and
// running statistics go with it; gradients mean nothing between steps and are not saved. Each rank writes the
// pieces it owns and reads all it holds: a checkpoint fits any mesh and strategy.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tandem/checkpoint/manifest.h"
#include "tandem/checkpoint/reader.h"
#include "tandem/checkpoint/writer.h"
#include "tandem/compile/executable.h"
#include "tandem/hub/hub_weights.h"
#include "tandem/runtime/session.h"
#include "tandem/train/world.h"

namespace tandem {

// Bytes of a staging copy of what this rank writes, for the host arena.
int64_t state_staging_bytes(const CompiledStep& step);

// What it writes, without the memory: where nothing is read.
std::vector<TensorView> state_outline(const CompiledStep& step);

// What this rank writes. What the CPU does not reach is copied: into `memory`, which has state_staging_bytes,
// each piece to where the file has it; or, where `memory` is empty, into `own`.
struct StateViews {
  std::vector<TensorView> views;
  std::unique_ptr<std::byte[]> own;
};
StateViews state_views(const Session& session, std::span<std::byte> memory = {});

// Whether all of these numbers, and the weights that are rounded from them, are finite.
bool is_finite(Session& session, std::span<const TensorView> views);

// The newest good checkpoint of a store, or the one at a path, loaded into a training session. All ranks
// call it together.
Latest restore_latest(Session& session, const StoreRef& store, const World& world);
Manifest restore(Session& session, const std::filesystem::path& checkpoint);
void restore(Session& session, const Manifest& manifest);

// Weights only, into a forward-only session of any precision on one rank.
void load_weights(Session& session, const Manifest& manifest);

// The weights of a Hugging Face directory, into a session of either kind: each rank reads what it holds. A
// training session's other state stays as it is. All ranks call it together. Throws DataError naming a
// parameter that the directory does not have. Tells its progress unless it is quiet.
void load_weights(Session& session, const hub::HubWeights& weights, bool quiet = false);

}  // namespace tandem
