// The last step of compilation: nodes become commands on planned slices. Views need no command.
#pragma once

#include "tandem/compile/compile_step.h"
#include "tandem/compile/memory_plan.h"

namespace tandem {

Executable lower(std::string name, const Graph& graph, const MemoryPlan& plan, const ChooseKernel& choose);

}  // namespace tandem
