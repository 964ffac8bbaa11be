#include "tandem/kernels/cpu/optimizer/optimizer_kernels.h"

#include <cstring>

#include "tandem/kernels/cpu/optimizer/optimizer_chunks.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"
#include "tandem/kernels/cpu/register.h"

namespace tandem::cpu {
namespace {

std::byte* address(const TensorArg& tensor, int64_t elem) {
  return tensor.as<std::byte>() + elem * dtype_bytes(tensor.type.dtype);
}

float* floats(const TensorArg* tensor, int64_t elem) {
  return tensor == nullptr ? nullptr : tensor->as<float>() + elem;
}

}  // namespace

void update_all(Op op, const KernelArgs& args, ThreadPool& pool, UpdateFn update) {
  const OptimizerStep step = optimizer_step(args.in[0].as<float>(), args.in[1].as<double>());
  const bool keep_gradients = args.attrs.integer_or("keep", 0) != 0;
  const std::vector<ParamGroup> groups = read_param_groups(op, args);
  OptimizerChunks chunks;
  for (const ParamGroup& group : groups) chunks.add_tensor(group.w->elems());
  pool.parallel_for(chunks.size(), [&](int64_t task, int) {
    const auto [tensor, begin, elems] = chunks[task];
    const ParamGroup& group = groups[tensor];
    const UpdateChunk chunk{.w_dtype = group.w->type.dtype,
                            .g_dtype = group.g->type.dtype,
                            .w = address(*group.w, begin),
                            .g = address(*group.g, begin),
                            .m = floats(group.m, begin),
                            .v = floats(group.v, begin),
                            .master = group.master == nullptr ? nullptr : address(*group.master, begin),
                            .decayed = group.decayed,
                            .keep_gradient = keep_gradients,
                            .elems = elems};
    if (!step.skip) {
      update(chunk, step);
    } else if (!keep_gradients) {
      std::memset(chunk.g, 0, static_cast<size_t>(elems * dtype_bytes(chunk.g_dtype)));
    }
  });
}

void add_optimizer_kernels(KernelRegistry& registry) {
  add_global_norm_kernels(registry);
  add_adamw_kernels(registry);
  add_sgd_kernels(registry);
}

}  // namespace tandem::cpu
