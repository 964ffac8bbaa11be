// Activations that wait for backward in the host's memory.
//
// Changes: what forward keeps for backward is copied to the host as soon as it is made, and back to the
// device when
//   backward begins with the block after the one that reads it: one block ahead, beside the computation. Its
//   bytes on the device are free in between. The blocks' are offloaded from the first on, as they wait
//   longest; what the last block's backward reads stays, because it would come back at once.
// Keeps: the values, bit for bit. Small values stay, and those that share bytes with others.
#pragma once

#include <cstdint>
#include <limits>

#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

// By then it is settled what is kept.
inline constexpr PassInfo kOffloadActivationsPass = {.name = "offload",
                                                     .needs_before = {"differentiate", "recompute", "fuse"},
                                                     .needs_after = {"schedule"},
                                                     .optional = true};

// At most `most_bytes` of a micro-batch's go to the host.
Graph offload_activations(const Graph& graph, int64_t most_bytes = std::numeric_limits<int64_t>::max());

}  // namespace tandem
