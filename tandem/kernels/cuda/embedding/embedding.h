// The part of add_embedding_kernels that lives in a file of its own.
#pragma once

#include "tandem/runtime/kernel.h"

namespace tandem::cuda {

void add_embedding_grad_kernels(KernelRegistry& registry);

}  // namespace tandem::cuda
