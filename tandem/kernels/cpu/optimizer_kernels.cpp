#include "tandem/kernels/cpu/optimizer_kernels.h"

#include <cstring>

#include "tandem/kernels/cpu/optimizer_chunks.h"
#include "tandem/kernels/cpu/pointwise.h"
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

bool supports_update(const CallSignature& call) {
  const auto size = static_cast<size_t>(param_group_size(call.op, *call.attrs));
  if (call.in[0].dtype != DType::F32 || call.in[1].dtype != DType::F64) return false;
  for (size_t at = 2; at < call.in.size(); at += size) {
    const DType w = call.in[at].dtype, g = call.in[at + 1].dtype;
    if (!is_storage(w) || (g != DType::F32 && g != w)) return false;
    for (size_t i = at + 2; i < at + size; ++i) {
      if (call.in[i].dtype != DType::F32) return false;
    }
  }
  return true;
}

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
                            .master = floats(group.master, begin),
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
