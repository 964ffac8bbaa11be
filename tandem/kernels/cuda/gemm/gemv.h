// The product of one row with a transposed matrix, for generation: bound by reading the matrix once.
#pragma once

#include "tandem/runtime/kernel.h"

namespace tandem::cuda {

void add_gemv_kernel(KernelRegistry& registry);  // matmul with {few: 1} of one row

}  // namespace tandem::cuda
