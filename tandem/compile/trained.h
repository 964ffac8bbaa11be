// What of a model training reaches: some parameters may be frozen (the attribute of Param).
#pragma once

#include <set>

#include "tandem/ir/graph.h"

namespace tandem {

bool is_frozen(const Node& param);

// The values that a trained parameter leads to: those that have a gradient. What comes from another chunk of
// the model counts unless its recv says that it is untrained.
std::set<Value> trained_values(const Graph& forward);

// FLOPs of a pass: three times those of forward, less the products that are for gradients nobody needs
// because parameters are frozen.
int64_t training_model_flops(const Graph& forward);

}  // namespace tandem
