// The fast optimizer kernels by family, and what the updates share. An update is bound by memory:
// weight, gradient and states are read once and written once, and the gradient's zeroing rides along.
#pragma once

#include <functional>

#include "tandem/runtime/kernel.h"
#include "tandem/runtime/optimizer_args.h"

namespace tandem::cpu {

void add_global_norm_kernels(KernelRegistry& registry);    // SquareSums, GlobalNorm
void add_update_kernels(KernelRegistry& registry);         // one for each optimizer
void add_matrix_update_kernels(KernelRegistry& registry);  // what an update does with whole matrices
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
  size_t rate;  // of the call's steps, which is its own
  int64_t elems;
};

// Runs `update` on the chunks of all parameters in parallel; a step that must be skipped only zeroes the
// gradients, unless they are to be kept.
void update_all(Op op, const KernelArgs& args, ThreadPool& pool, bool skip,
                const std::function<void(const UpdateChunk&)>& update);

}  // namespace tandem::cpu
