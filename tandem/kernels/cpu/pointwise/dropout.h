// Dropout: a pass over memory, and a random number for each element.
#pragma once

#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

void add_dropout_kernels(KernelRegistry& registry);

}  // namespace tandem::cpu
