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
// which asynchronous checkpoints are written.
struct HostLayout {
  int64_t train_ring = 0;
  int64_t eval_ring = 0;
  int64_t staging = 0;
  int64_t total() const { return train_ring + eval_ring + staging; }
};
HostLayout host_layout(const Config& config, const CompiledStep& step);

// memory.limit, or the device's memory, or a share of the machine's; and what counts against it: all but the
// host arena where the device has a memory of its own.
int64_t memory_limit(const Config& config, const CompileOptions& options);
int64_t counted_bytes(const ArenaSizes& sizes, const CompileOptions& options);

// Throws PlanError naming the cheapest change that fits when the plan is over the limit. To find it takes
// many compilations: `while_compiling` is for them.
void require_fit(const Config& config, const Backend& backend, const CompiledStep& step,
                 const BuildModel& model = build_model, int ranks_here = 1,
                 const std::function<void()>& while_compiling = {});

}  // namespace tandem
