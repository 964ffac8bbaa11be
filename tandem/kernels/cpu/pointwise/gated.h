// Gated activations: y = silu(gate) * up, or gelu(gate) * up, on rows that hold the gate, then the up half.
#pragma once

#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

void add_gated_kernels(KernelRegistry& registry);  // silu and gelu, and their gradients

}  // namespace tandem::cpu
