// One graph for the whole step of a pipeline rank, so that one memory plan sees which activations are alive
// at the same time: under 1f1b it is smaller than under gpipe without being told.
//
// Changes: each chunk's graph is split into its forward part and the rest (recompute and backward), and
//   copied for every micro-batch in the order of the slots. Parameters and states are there once; a copy
//   that updates one in place begins with what the copy before has left in it. Inputs are there once a
//   micro-batch, as "<name>.<micro-batch>", but for "scale", which all share; outputs are named likewise
//   ("stats.3").
// Keeps: within a slot, the nodes and their order.
#pragma once

#include <span>
#include <vector>

#include "tandem/compile/pass_info.h"
#include "tandem/compile/pipeline_order.h"
#include "tandem/ir/graph.h"

namespace tandem {

inline constexpr PassInfo kUnrollPass = {.name = "unroll", .needs_before = {"stage", "schedule"}};

// `chunks` are those of one rank, in the order of PipelineSlot::chunk_on_rank.
Graph unroll(std::span<const Graph> chunks, std::span<const PipelineSlot> order, int micro_batches);

// The name of an input or output of the unrolled graph.
std::string micro_batch_name(std::string_view name, int micro_batch);  // "tokens.3"

}  // namespace tandem
