// What train.groups says of a model's parameters, written onto them.
#pragma once

#include <vector>

#include "tandem/config/train_group.h"
#include "tandem/ir/graph.h"

namespace tandem {

// Gives each parameter of a forward graph the attributes of the first group whose pattern its name matches.
// Throws ConfigError for a pattern that matches no parameter, or only those of earlier groups, and where
// nothing is left to train.
void apply_groups(const std::vector<TrainGroup>& groups, Graph& forward);

// What each group has of the graph's parameters, by their numbers in the graph's order.
std::vector<std::vector<size_t>> members_of(const std::vector<TrainGroup>& groups, const Graph& forward);

}  // namespace tandem
