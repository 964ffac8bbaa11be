// Gated activation of llama-like models: y = silu(gate) * up on rows that hold the gate, then the up half.
#pragma once

#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

void add_swiglu_kernels(KernelRegistry& registry);  // Swiglu, SwigluGrad

}  // namespace tandem::cpu
