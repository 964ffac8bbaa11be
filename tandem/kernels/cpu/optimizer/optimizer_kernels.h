// The fast optimizer kernels by family, and what the two update rules share. An update is bound by memory:
// weight, gradient and moments are read once and written once, and the gradient's zeroing rides along.
#pragma once

#include "tandem/runtime/kernel.h"
#include "tandem/runtime/optimizer_args.h"
#include "tandem/runtime/optimizer_step.h"

namespace tandem::cpu {

void add_global_norm_kernels(KernelRegistry& registry);  // SquareSums, GlobalNorm
void add_adamw_kernels(KernelRegistry& registry);
void add_sgd_kernels(KernelRegistry& registry);

// `elems` elements of a parameter. v and master are null where the parameter has none.
struct UpdateChunk {
  DType w_dtype, g_dtype;
  void* w;
  void* g;
  float* m;
  float* v;
  void* master;  // of type master_dtype(w_dtype)
  bool decayed, keep_gradient;
  int64_t elems;
};

// Runs update(chunk, step) on the chunks of all parameters in parallel; a step that must be skipped only
// zeroes the gradients, unless they are to be kept.
using UpdateFn = void (*)(const UpdateChunk& chunk, const OptimizerStep& step);
void update_all(Op op, const KernelArgs& args, ThreadPool& pool, UpdateFn update);

}  // namespace tandem::cpu
