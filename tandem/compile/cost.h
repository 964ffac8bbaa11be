// The arithmetic and the unavoidable memory traffic of one node: what profiles and plans measure against.
#pragma once

#include <span>

#include "tandem/ir/graph.h"

namespace tandem {

struct Cost {
  int64_t flops = 0;
  int64_t bytes = 0;
  int64_t sent = 0;  // to other ranks
};

Cost node_cost(const Node& node, std::span<const TensorType> in);

// FLOPs of matrix products and attention of a forward graph; training costs three times that. Causal
// attention counts half of its square.
int64_t forward_model_flops(const Graph& forward);

}  // namespace tandem
