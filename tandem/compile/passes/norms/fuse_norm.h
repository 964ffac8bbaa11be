// What stands behind a batch norm is done while its output is in registers.
//
// Changes: batch_norm + relu, or batch_norm + add + relu, in one phase -> batch_norm {relu: 1}, with the
//   residual; the same of batch_norm_infer. The ReLU's gradient, where all that reads it is the gradient of
//   such a norm without a residual -> batch_norm_grad {relu: 1}.
// Keeps: values bit for bit: the norm's output and the sum are rounded on their way, and the gradient makes
// the
//   output again just as it was made.
// A part of fuse.
#pragma once

#include "tandem/ir/graph.h"

namespace tandem {

Graph fuse_norms(const Graph& graph);

}  // namespace tandem
