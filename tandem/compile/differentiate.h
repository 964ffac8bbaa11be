// From a forward graph to one micro-batch of training.
//
// Changes: the loss becomes cross_entropy_grad, which turns the logits into their gradient in place, and
//   backward nodes are appended in reverse order; every parameter gets a gradient state "grad:<name>", to
//   which its contributions are added in place, so that running the graph again accumulates.
// Keeps: the forward nodes and their numbers. Only the output "stats" remains.
// Needs before: a forward graph with outputs "logits" and "stats". Needs after: nothing.
#pragma once

#include "tandem/ir/graph.h"

namespace tandem {

Graph differentiate(const Graph& forward, DType grad_dtype = DType::F32);

}  // namespace tandem
