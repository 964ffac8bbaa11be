// Fewer trips to memory: neighbours become one op where a fused kernel exists.
//
// Changes: matmul + bias + gelu -> matmul_gelu (where backward also needs the pre-activation);
//   add + norm -> add_norm; norm gradient + add of the residual's gradient -> one op;
//   a large vocabulary projection + loss (+ their gradients) -> linear_cross_entropy(_grad), in chunks of
//   rows.
// Keeps: values bit for bit, except that the chunked projection sums its weight gradient chunk by chunk.
// Needs before: recompute (which wants single ops to choose from). Needs after: nothing.
#pragma once

#include "tandem/ir/graph.h"

namespace tandem {

struct FuseOptions {
  int64_t chunk_logits_above = 16 << 20;  // bytes of logits from which the projection is chunked
  int64_t chunk_bytes = 8 << 20;          // logits in flight then (never under 256 rows)
};

Graph fuse(const Graph& graph, const FuseOptions& options = {});

}  // namespace tandem
