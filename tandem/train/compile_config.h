// From a config to a compiled step on a backend: the one function that `plan`, `profile` and `train` share.
#pragma once

#include <functional>
#include <vector>

#include "tandem/compile/compile_step.h"
#include "tandem/config/config.h"
#include "tandem/models/model.h"
#include "tandem/runtime/backend.h"

namespace tandem {

// config.threads, or this rank's share of the cores.
int thread_count(const Config& config, int ranks_here = 1);

// For the rank at a place of the config's mesh. On `ranks_here` ranks of this machine.
CompileOptions compile_options(const Config& config, const Backend& backend, const MeshPosition& at = {},
                               int ranks_here = 1);
CompiledStep compile_config(const Config& config, CompileOptions options,
                            const BuildModel& model = build_model);

// Ranks that between them are like every rank of a mesh: stages differ, tensor rank 0 holds more than the
// others, and along the data axis ranks differ only by what they stage for checkpoints, a few cache lines.
std::vector<MeshPosition> rank_kinds(const MeshShape& mesh);

// How the host arena is divided: prefetch rings of the loaders, then the staging copy of the state from
// which asynchronous checkpoints are written, then the buffers in which they go to checkpoint.store.
struct HostLayout {
  int64_t train_ring = 0;
  int64_t eval_ring = 0;
  int64_t staging = 0;
  int64_t upload = 0;
  int64_t total() const { return train_ring + eval_ring + staging + upload; }
};
HostLayout host_layout(const Config& config, const CompiledStep& step);

}  // namespace tandem
