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

}  // namespace

void update_all(Op op, const KernelArgs& args, ThreadPool& pool, bool skip,
                const std::function<void(const UpdateChunk&)>& update) {
  const bool keep_gradients = args.attrs.integer_or("keep", 0) != 0;
  const std::vector<ParamGroup> groups = read_param_groups(op, args);
  OptimizerChunks chunks;
  for (const ParamGroup& group : groups) chunks.add_tensor(group.w->elems());
  pool.parallel_for(chunks.size(), [&](int64_t task, int) {
    const auto [tensor, begin, elems] = chunks[task];
    const ParamGroup& group = groups[tensor];
    UpdateChunk chunk{.w_dtype = group.w->type.dtype,
                      .g_dtype = group.g->type.dtype,
                      .w = address(*group.w, begin),
                      .g = address(*group.g, begin),
                      .states = {},
                      .master = group.master == nullptr ? nullptr : address(*group.master, begin),
                      .decayed = group.decayed,
                      .keep_gradient = keep_gradients,
                      .elems = elems};
    for (size_t s = 0; s < group.states.size(); ++s) chunk.states[s] = group.states[s].as<float>() + begin;
    if (!skip) {
      update(chunk);
    } else if (!keep_gradients) {
      std::memset(chunk.g, 0, static_cast<size_t>(elems * dtype_bytes(chunk.g_dtype)));
    }
  });
}

void add_optimizer_kernels(KernelRegistry& registry) {
  add_global_norm_kernels(registry);
  add_update_kernels(registry);
  add_matrix_update_kernels(registry);
}

}  // namespace tandem::cpu
