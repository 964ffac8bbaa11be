// Cutting a model along its depth: the pipeline axis.
//
// The blocks are dealt out in order to `num_chunks` chunks, as evenly as they go; chunk c runs on pipeline
// rank c % size. Blocks left over go to the chunks just before the last: the last one has the head and the
// loss to run, and later ranks hold fewer micro-batches in flight than earlier ones. What comes before the
// first block (the embedding) belongs to chunk 0, what comes after the last block to the last chunk.
//
// Changes: keeps the nodes of one chunk, begins it with a recv from the chunk before and ends it with a send
//   to the chunk after. A parameter of both ends (a tied embedding) is in both of their graphs under its
//   name, with the attribute tied="first" and tied="last". Where all that leads to what is sent is frozen,
//   both its send and its recv say so: no gradient comes back.
// Keeps: nodes, their order and the numbers of their blocks.
#pragma once

#include "tandem/base/mesh.h"
#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

// Precision gives what crosses a boundary its type.
inline constexpr PassInfo kStagePass = {
    .name = "stage", .needs_before = {"tensor", "sync_norm"}, .needs_after = {"precision", "unroll"}};

// Throws ConfigError where the model has fewer blocks than chunks, or where other values than one, the
// residual stream, would have to cross a boundary.
Graph cut_stage(const Graph& forward, int chunk, int num_chunks, const MeshPosition& at);

// For each of `num_blocks` blocks, in order, the chunk that runs it.
std::vector<int> chunk_of_blocks(int num_blocks, int num_chunks);

}  // namespace tandem
