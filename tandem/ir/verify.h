// What must hold of every graph between passes.
#pragma once

#include "tandem/ir/graph.h"

namespace tandem {

// Checks that inputs come before uses, that there are as many as the op table says, with its attributes, that
// types are those infer_outputs gives, leaves have unique names, and no value is read after an in-place op
// has overwritten its bytes. Throws BugError naming `where` (the pass that just ran) and the node.
void verify(const Graph& graph, std::string_view where);

}  // namespace tandem
