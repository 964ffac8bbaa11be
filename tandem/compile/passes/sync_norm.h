// BatchNorm over the micro-batches of all ranks of the data axis.
//
// Changes: a batch_norm with the attribute `sync` becomes statistics of this rank's rows, an all_gather of
//   them, and the normalisation by all of them.
// Keeps: everything else; on one rank, everything.
// Needs before: a forward graph. Needs after: differentiate (which knows the new ops).
#pragma once

#include "tandem/base/mesh.h"
#include "tandem/ir/graph.h"

namespace tandem {

Graph sync_norm(const Graph& forward, const MeshPosition& at);

}  // namespace tandem
