// Ops that only move bytes.
#pragma once

#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

void add_shape_kernels(KernelRegistry& registry);  // Concat, Slice, Zeros, Copy

}  // namespace tandem::cpu
