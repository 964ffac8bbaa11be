// Whether a step fits into memory, and what to change when it does not: candidates in the order of what they
// cost the user, each compiled and measured like the run itself, so that the change that is named works.
#pragma once

#include <functional>

#include "tandem/train/compile_config.h"

namespace tandem {

// memory.limit, or the device's memory, or a share of the machine's; and what counts against it: all but the
// host arena where the device has a memory of its own.
int64_t memory_limit(const Config& config, const CompileOptions& options);
int64_t counted_bytes(const ArenaSizes& sizes, const CompileOptions& options);
// For the host arena of a rank whose device has a memory of its own and is there; else as much as there can
// be.
int64_t host_limit(const CompileOptions& options);

// Throws PlanError naming the cheapest change that fits when the plan is over the limit. To find it takes
// many compilations: `while_compiling` is for them.
void require_fit(const Config& config, const Backend& backend, const CompiledStep& step,
                 const BuildModel& model = build_model, int ranks_here = 1,
                 const std::function<void()>& while_compiling = {});

}  // namespace tandem
