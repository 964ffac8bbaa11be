// The fast optimizer kernels by family, and what the updates share. An update is bound by memory:
// weight, gradient and states are read once and written once, and the gradient's zeroing rides along.
#pragma once

#include <functional>

#include "tandem/runtime/kernel.h"
#include "tandem/runtime/optimizer_args.h"

namespace tandem::cpu {

void add_global_norm_kernels(KernelRegistry& registry);      // SquareSums, GlobalNorm
void add_exact_norm_kernels(KernelRegistry& registry);       // the same, {exact: 1}
void add_update_kernels(KernelRegistry& registry);           // one for each optimizer
void add_parameter_sums_kernels(KernelRegistry& registry);   // what optimizers read of whole parameters
void add_matrix_update_kernels(KernelRegistry& registry);    // what an update does with whole matrices
void add_factored_update_kernels(KernelRegistry& registry);  // squares by rows and columns
void add_ema_kernels(KernelRegistry& registry);

double sum_of_squares(DType dtype, const void* src, int64_t elems);

inline constexpr size_t kMaxStates = 2;

// `elems` elements of a parameter. Master is null where the parameter has none.
struct UpdateChunk {
  DType w_dtype, g_dtype;
  void* w;
  void* g;
  float* states[kMaxStates];
  void* master;  // of type master_dtype(w_dtype)
  bool decayed, keep_gradient;
  int64_t slot;  // of the parameter
  size_t rate;   // of the call's steps, which is its own
  int64_t elems;
};

// The steps of a call, one for each of the factors that its parameters have.
template <typename Rule>
std::vector<OptimizerStep<Rule>> steps_of(const KernelArgs& args) {
  std::vector<OptimizerStep<Rule>> steps;
  for (const GroupFactors& factors : read_rates(args.attrs))
    steps.push_back(optimizer_step<Rule>(args.in[0].as<float>(), args.in[1].as<double>(), factors));
  return steps;
}

// Runs `update` on the chunks of all parameters in parallel; a step that must be skipped only zeroes the
// gradients, unless they are to be kept.
void update_all(Op op, const KernelArgs& args, ThreadPool& pool, bool skip,
                const std::function<void(const UpdateChunk&)>& update);

// Runs `measure` on the chunks of these parameters in parallel, with the number of the chunk. It changes
// nothing; states that are kept in fewer bits come as fp32, and a chunk then in several blocks.
void measure_all(Op op, std::span<const ParamGroup> groups, ThreadPool& pool,
                 const std::function<void(const UpdateChunk&, int64_t)>& measure);

}  // namespace tandem::cpu
