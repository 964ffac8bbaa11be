// A forward graph for evaluation.
//
// Changes: batch_norm reads its running statistics instead of the batch's; either the loss (for evaluation)
//   or the logits (for sampling) is the only output, and what the other alone needed is gone; of images,
//   which have few, the logits stay beside the loss: the host counts in them. The loss has no terms.
// Keeps: everything else, the send at the end of a chunk of a pipeline included.
#pragma once

#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

inline constexpr PassInfo kInferencePass = {.name = "inference", .needs_before = {"precision"}};

Graph inference(const Graph& forward, bool keep_logits);

}  // namespace tandem
