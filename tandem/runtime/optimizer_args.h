// What the optimizer ops' inputs mean: the parameters' groups of tensors, the slots of the norm. Shared by
// the kernels of all devices.
#pragma once

#include <span>
#include <vector>

#include "tandem/runtime/kernel.h"

namespace tandem {

// One parameter's tensors, which point into the call's arguments.
struct ParamGroup {
  const TensorArg* w;
  const TensorArg* g;
  std::span<const TensorArg> states;
  const TensorArg* master;  // null where w itself is updated; beside a bf16 w its low half
  bool decayed;
  std::span<const TensorArg> scales;  // of states in 8 bits
  uint64_t key = 0;                   // of the random numbers that round the first element's states
  int64_t slot = 0;                   // of the parameter, where the call says it
  size_t rate = 0;                    // among read_rates
};
std::vector<ParamGroup> read_param_groups(Op op, const KernelArgs& args);
// Those whose squares a call of sums_op sums; `op` is the optimizer's.
std::vector<ParamGroup> read_measured_groups(Op op, const KernelArgs& args);

// The factors of lr and decay that a call's parameters have, the plain ones first.
std::vector<GroupFactors> read_rates(const Attrs& attrs);

// Tensors of one parameter in a call of an optimizer.
int64_t param_group_size(Op op, const Attrs& attrs);

// Whether a call of an optimizer has the types that kernels take: weights of any storage type, gradients of
// theirs or f32, masters of master_dtype, all else f32.
bool supports_update(const CallSignature& call);
bool supports_parameter_sums(const CallSignature& call);  // of what is measured, likewise

// For each piece of gradient in a call of SquareSums, the slot it adds to.
std::vector<int64_t> read_slots(const KernelArgs& args);

}  // namespace tandem
