// Which columns must stay together when a value is split by its last dim. Packed queries, keys and values are
// three sections and gate and up are two; a rank takes its part of each, so that what it holds is again
// packed queries, keys and values, of its own heads. Found from the readers back to the linear that makes the
// value.
#pragma once

#include <map>
#include <vector>

#include "tandem/compile/passes/tensor_refusal.h"
#include "tandem/ir/graph.h"

namespace tandem {

using Sections = std::vector<int64_t>;  // columns of each, in order

// Of every value whose readers ask for some; the columns of all others are one section.
std::map<Value, Sections> column_sections(const Graph& graph, const Refusal& refusal);

Sections qkv_sections(const Graph& graph, int32_t attention_or_rope);

}  // namespace tandem
