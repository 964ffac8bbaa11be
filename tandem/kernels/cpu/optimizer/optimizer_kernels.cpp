#include "tandem/kernels/cpu/optimizer/optimizer_kernels.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "tandem/kernels/cpu/optimizer/optimizer_chunks.h"
#include "tandem/kernels/cpu/pointwise/pointwise.h"
#include "tandem/kernels/cpu/register.h"
#include "tandem/optimizers/packed_state.h"

namespace tandem::cpu {
namespace {

std::byte* address(const TensorArg& tensor, int64_t elem) {
  return tensor.as<std::byte>() + elem * dtype_bytes(tensor.type.dtype);
}

bool is_packed(const ParamGroup& group) {
  return !group.states.empty() && group.states[0].type.dtype != DType::F32;
}

// Blocks of states are made fp32, updated, and kept in fewer bits again, unless they are only read.
void visit_packed(const ParamGroup& group, Op op, std::optional<int64_t> step, int64_t begin,
                  const UpdateChunk& chunk, const std::function<void(const UpdateChunk&)>& visit) {
  PackedStates packed{.type = group.states[0].type.dtype,
                      .names = optimizer_entry(*optimizer_of(op)).states.first(group.states.size())};
  for (size_t s = 0; s < group.states.size(); ++s) {
    packed.codes[s] = group.states[s].as<std::byte>();
    if (!group.scales.empty()) packed.scales[s] = group.scales[s].as<float>();
  }
  float states[kMaxStates][kStateBlock];
  float* numbers[kMaxStates];
  for (size_t s = 0; s < kMaxStates; ++s) numbers[s] = states[s];
  for (int64_t at = 0; at < chunk.elems; at += kStateBlock) {
    UpdateChunk block = chunk;
    block.elems = std::min(kStateBlock, chunk.elems - at);
    block.w = static_cast<std::byte*>(chunk.w) + at * dtype_bytes(chunk.w_dtype);
    block.g = static_cast<std::byte*>(chunk.g) + at * dtype_bytes(chunk.g_dtype);
    if (chunk.master != nullptr) block.master = address(*group.master, begin + at);
    for (size_t s = 0; s < group.states.size(); ++s) block.states[s] = states[s];
    const PackedStates here = packed.from(begin + at);
    here.unpack(numbers, block.elems);
    visit(block);
    if (step) here.pack(numbers, block.elems, *step, group.key + static_cast<uint64_t>(begin + at));
  }
}

OptimizerChunks chunks_of(std::span<const ParamGroup> groups) {
  OptimizerChunks chunks;
  for (const ParamGroup& group : groups) chunks.add_tensor(group.w->elems());
  return chunks;
}

// Without states.
UpdateChunk chunk_of(const ParamGroup& group, int64_t begin, int64_t elems, bool keep_gradients) {
  return {.w_dtype = group.w->type.dtype,
          .g_dtype = group.g->type.dtype,
          .w = address(*group.w, begin),
          .g = address(*group.g, begin),
          .states = {},
          .master = group.master == nullptr ? nullptr : address(*group.master, begin),
          .decayed = group.decayed,
          .keep_gradient = keep_gradients,
          .slot = group.slot,
          .rate = group.rate,
          .elems = elems};
}

void set_states(const ParamGroup& group, int64_t begin, UpdateChunk& chunk) {
  for (size_t s = 0; s < group.states.size(); ++s) chunk.states[s] = group.states[s].as<float>() + begin;
}

}  // namespace

void update_all(Op op, const KernelArgs& args, ThreadPool& pool, bool skip,
                const std::function<void(const UpdateChunk&)>& update) {
  const bool keep_gradients = args.attrs.integer_or("keep", 0) != 0;
  const std::vector<ParamGroup> groups = read_param_groups(op, args);
  const OptimizerChunks chunks = chunks_of(groups);
  pool.parallel_for(chunks.size(), [&](int64_t task, int) {
    const auto [tensor, begin, elems] = chunks[task];
    const ParamGroup& group = groups[tensor];
    UpdateChunk chunk = chunk_of(group, begin, elems, keep_gradients);
    if (is_packed(group) && !skip) {
      const auto step = static_cast<int64_t>(args.in[0].as<float>()[kHyperStep]);
      return visit_packed(group, op, step, begin, chunk, update);
    }
    if (!skip) {
      set_states(group, begin, chunk);
      update(chunk);
    } else if (!keep_gradients) {
      std::memset(chunk.g, 0, static_cast<size_t>(elems * dtype_bytes(chunk.g_dtype)));
    }
  });
}

void measure_all(Op op, std::span<const ParamGroup> groups, ThreadPool& pool,
                 const std::function<void(const UpdateChunk&, int64_t)>& measure) {
  const OptimizerChunks chunks = chunks_of(groups);
  pool.parallel_for(chunks.size(), [&](int64_t task, int) {
    const auto [tensor, begin, elems] = chunks[task];
    const ParamGroup& group = groups[tensor];
    UpdateChunk chunk = chunk_of(group, begin, elems, true);
    const auto visit = [&](const UpdateChunk& part) { measure(part, task); };
    if (is_packed(group)) return visit_packed(group, op, {}, begin, chunk, visit);
    set_states(group, begin, chunk);
    visit(chunk);
  });
}

void add_optimizer_kernels(KernelRegistry& registry) {
  add_exact_norm_kernels(registry);
  add_global_norm_kernels(registry);
  add_update_kernels(registry);
  add_parameter_sums_kernels(registry);
  add_matrix_update_kernels(registry);
  add_factored_update_kernels(registry);
  add_ema_kernels(registry);
}

}  // namespace tandem::cpu
