// Which parameters are several matrices in one: packed queries, keys and values are three, gate and up two.
// An optimizer that works on matrices takes them apart. Found from the readers of what their linear makes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/ir/graph.h"

namespace tandem {

using RowSections = std::map<std::string, std::vector<int64_t>>;  // parameter -> rows of each, in order

// Of the logical model, before the tensor axis cuts it.
RowSections row_sections(const Graph& forward);

}  // namespace tandem
