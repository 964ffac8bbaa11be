// From a forward graph to one micro-batch of training.
//
// Changes: the loss becomes cross_entropy_grad (vocab_loss_grad where the vocabulary is split), which turns
//   the logits into their gradient in place, and backward nodes are appended in reverse order; every
//   parameter gets a gradient state "grad:<name>", to which its contributions are added in place, so that
//   running the graph again accumulates. A chunk of a pipeline that ends in a send has no loss: its backward
//   begins with a recv of the sent value's gradient; one that begins with a recv ends its backward with a
//   send. What only frozen parameters lead to has no gradient: backward ends where they begin.
// Keeps: the forward nodes and their numbers. Only the output "stats" remains, and the model's own metrics.
#pragma once

#include "tandem/compile/pass_info.h"
#include "tandem/compile/passes/precision.h"
#include "tandem/ir/gradient_context.h"
#include "tandem/ir/graph.h"

namespace tandem {

// The forward graph ends in the loss or in a send.
inline constexpr PassInfo kDifferentiatePass = {
    .name = "differentiate", .needs_before = {"precision"}, .needs_after = {"update"}};

// With `split_tied`, a table that is both embedding and head gets two gradients (kEmbeddingPart).
Graph differentiate(const Graph& forward, const PrecisionPolicy& precision = {}, bool split_tied = false);

}  // namespace tandem
