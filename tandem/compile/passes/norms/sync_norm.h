// BatchNorm over the micro-batches of all ranks of the data axis.
//
// Changes: a batch_norm with the attribute `sync` becomes statistics of this rank's rows, an all_gather of
//   them, and the normalisation by all of them.
// Keeps: everything else; on one rank, everything.
#pragma once

#include "tandem/base/mesh.h"
#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

inline constexpr PassInfo kSyncNormPass = {
    .name = "sync_norm", .needs_before = {"model"}, .needs_after = {"differentiate"}};

Graph sync_norm(const Graph& forward, const MeshPosition& at);

}  // namespace tandem
