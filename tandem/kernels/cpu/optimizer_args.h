// What the optimizer ops' inputs mean: the parameters' groups of tensors, the slots of the norm. Shared by
// the reference and the fast kernels.
#pragma once

#include <vector>

#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

// One parameter's tensors, which point into the call's arguments.
struct ParamGroup {
  const TensorArg* w;
  const TensorArg* g;
  const TensorArg* m;
  const TensorArg* v;       // null for Sgd
  const TensorArg* master;  // null where w itself is updated
  bool decayed;
};
std::vector<ParamGroup> read_param_groups(Op op, const KernelArgs& args);

// Tensors of one parameter in a call of AdamW or Sgd.
int64_t param_group_size(Op op, const Attrs& attrs);

// For each piece of gradient in a call of SquareSums, the slot it adds to.
std::vector<int64_t> read_slots(const KernelArgs& args);

}  // namespace tandem::cpu
