#include "tandem/kernels/cuda/attention/fused_attention.h"

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/attention/padded_sequences.h"
#include "tandem/kernels/cuda/library/per_device.h"
#include "tandem/kernels/cuda/library/scratch.h"

namespace tandem::cuda {
namespace {

constexpr size_t kOldestVersion = 91002;  // 9.10.0 and 9.10.1 compute wrong results
constexpr size_t kEngineBytes = 4096;     // an engine's counters

size_t statistics_bytes(const FusedAttention& s) {
  return aligned(static_cast<size_t>(s.batch * s.heads * s.time) * sizeof(float));
}
size_t query_sums_bytes(const FusedAttention& s) {
  return aligned(static_cast<size_t>(s.batch * s.heads * s.time * s.head_dim) * sizeof(float));
}
int64_t scores(const FusedAttention& s) { return s.batch * s.heads * s.time * s.time; }

// An engine's own scratch. Keys' and values' gradients of each query head are there, 16 bits each, before
// they are summed over a group; engines before Hopper's want fp32 sums of the queries' gradient.
size_t grad_engine_bytes(const FusedAttention& s) {
  const size_t grouped = s.heads == s.kv_heads ? 0 : query_sums_bytes(s);
  return grouped + (s.deterministic ? static_cast<size_t>(scores(s)) * 2 : query_sums_bytes(s)) +
         kEngineBytes;
}

// Versions before 9.16 compute wrong gradients where the last block of keys is not full. So sequences are
// made whole blocks long, in copies: a causal mask hides what is appended, and zeros add nothing to a sum.
constexpr int64_t kBlock = 128;
bool is_padded(const FusedAttention& s) { return s.time % kBlock != 0; }
int64_t padded_time(const FusedAttention& s) { return (s.time + kBlock - 1) / kBlock * kBlock; }

// The sequences whose gradient is made at once, a divisor of the batch, as long as the library gets them.
FusedAttention grad_slice(FusedAttention shape) {
  shape.time = padded_time(shape);
  if (!shape.deterministic) return shape;
  const int64_t batch = shape.batch;
  for (int64_t parts = 1; parts <= batch; ++parts) {
    shape.batch = batch / parts;
    if (batch % parts == 0 && scores(shape) <= shape.max_scores) break;
  }
  return shape;
}

enum class Pass { Forward, Backward };

struct Compiled {
  cudnn::Graph graph;
  cudnn::Plan plan;
};

Compiled compile(Pass pass, const FusedAttention& s, cudnnHandle_t handle) {
  cudnn::Graph graph = pass == Pass::Forward ? fused_attention_graph(s) : fused_attention_grad_graph(s);
  graph.finalize(handle);
  const size_t allowed = pass == Pass::Forward ? kEngineBytes : grad_engine_bytes(s);
  std::string reason = "the library proposes none";
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (cudnn::Descriptor& config : cudnn::engine_configs(graph, mode)) {
      try {
        cudnn::Plan plan(graph, std::move(config));
        if (plan.workspace_bytes() <= allowed) return {std::move(graph), std::move(plan)};
        reason = fmt::format("it wants {} bytes of scratch", plan.workspace_bytes());
      } catch (const DeviceError& error) {
        reason = error.what();
      }
    }
  }
  throw DeviceError("cudnn: no engine for {} attention {}, [{}, {}] tokens, {}/{} heads of {}: {}",
                    dtype_name(s.type), pass == Pass::Forward ? "forward" : "backward", s.batch, s.time,
                    s.heads, s.kv_heads, s.head_dim, reason);
}

// A device's handle and the plans made with it. The lock also keeps a handle's stream for one launch.
struct DevicePlans {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  std::map<std::pair<Pass, FusedAttention>, Compiled> compiled;

  DevicePlans() {
    const size_t version = cudnn::library().get_version();
    if (version < kOldestVersion)
      throw DeviceError("libcudnn.so.9: is version {}, but {} or newer is needed", version, kOldestVersion);
    cudnn::check(cudnn::library().create(&handle), "cudnnCreate");
  }
  void run(Pass pass, const FusedAttention& shape, std::span<void* const> pointers, void* scratch,
           cudaStream_t queue) {
    const std::lock_guard lock(mutex);
    const auto key = std::pair(pass, shape);
    auto found = compiled.find(key);
    if (found == compiled.end()) found = compiled.emplace(key, compile(pass, shape, handle)).first;
    cudnn::check(cudnn::library().set_stream(handle, queue), "cudnnSetStream");
    found->second.plan.run(handle, pointers, scratch);
  }
};

// Sequence `begin` of a tensor with so many bytes a sequence.
std::byte* at_sequence(void* tensor, int64_t begin, int64_t bytes) {
  return static_cast<std::byte*>(tensor) + begin * bytes;
}

}  // namespace

bool fused_attention_supported(const FusedAttention& s, int64_t max_head_dim) {
  return is_half(s.type) && s.time > 0 && s.head_dim % 8 == 0 && s.head_dim <= max_head_dim;
}

// The engines do not know the gradient of a capped score.
bool fused_attention_grad_supported(const FusedAttention& s, int64_t max_head_dim) {
  return fused_attention_supported(s, max_head_dim) && s.cap == 0 && (s.causal || !is_padded(s));
}

size_t fused_attention_workspace(const FusedAttention&) { return kScratchAlignment + kEngineBytes; }

size_t fused_attention_grad_workspace(const FusedAttention& shape) {
  const FusedAttention slice = grad_slice(shape);
  const size_t copies = is_padded(shape) ? PaddedSlice::bytes(slice) : 0;
  return kScratchAlignment + statistics_bytes(slice) + (slice.deterministic ? 0 : query_sums_bytes(slice)) +
         grad_engine_bytes(slice) + copies;
}

void run_fused_attention(const FusedAttention& shape, const FusedAttentionTensors& tensors,
                         std::span<std::byte> workspace, cudaStream_t queue) {
  std::byte* scratch = aligned_begin(workspace, fused_attention_workspace(shape));
  std::byte* q = static_cast<std::byte*>(tensors.qkv);
  std::byte* k = q + shape.heads * shape.head_dim * dtype_bytes(shape.type);
  std::byte* v = k + shape.kv_heads * shape.head_dim * dtype_bytes(shape.type);
  const std::array<void*, 5> pointers = {q, k, v, tensors.out, tensors.lse};
  per_device<DevicePlans>().run(Pass::Forward, shape, pointers, scratch, queue);
}

void run_fused_attention_grad(const FusedAttention& shape, const FusedAttentionGradTensors& tensors,
                              std::span<std::byte> workspace, cudaStream_t queue) {
  const FusedAttention slice = grad_slice(shape);
  std::byte* row_sums = aligned_begin(workspace, fused_attention_grad_workspace(shape));
  std::byte* dq_sums = row_sums + statistics_bytes(slice);
  std::byte* scratch = slice.deterministic ? dq_sums : dq_sums + query_sums_bytes(slice);
  std::optional<PaddedSlice> padded;
  if (is_padded(shape)) padded.emplace(slice, shape.time, scratch + aligned(grad_engine_bytes(slice)), queue);

  const int64_t head_bytes = shape.head_dim * dtype_bytes(shape.type);
  const int64_t k_offset = shape.heads * head_bytes, v_offset = k_offset + shape.kv_heads * head_bytes;
  const int64_t packed_bytes = shape.time * shape.width() * dtype_bytes(shape.type);
  const int64_t out_bytes = shape.time * shape.heads * head_bytes;
  const int64_t lse_bytes = shape.time * shape.heads * static_cast<int64_t>(sizeof(float));
  DevicePlans& device = per_device<DevicePlans>();
  for (int64_t begin = 0; begin < shape.batch; begin += slice.batch) {
    const FusedAttentionGradTensors own{.dout = at_sequence(tensors.dout, begin, out_bytes),
                                        .qkv = at_sequence(tensors.qkv, begin, packed_bytes),
                                        .out = at_sequence(tensors.out, begin, out_bytes),
                                        .lse = at_sequence(tensors.lse, begin, lse_bytes),
                                        .dqkv = at_sequence(tensors.dqkv, begin, packed_bytes)};
    const FusedAttentionGradTensors used = padded ? padded->filled_from(own) : own;
    auto* q = static_cast<std::byte*>(used.qkv);
    auto* dq = static_cast<std::byte*>(used.dqkv);
    const std::array<void*, 11> pointers = {q,  q + k_offset,  q + v_offset,  used.out, used.dout, used.lse,
                                            dq, dq + k_offset, dq + v_offset, row_sums, dq_sums};
    device.run(Pass::Backward, slice, std::span(pointers).first(slice.deterministic ? 10 : 11), scratch,
               queue);
    if (padded) padded->copy_gradient_to(own);
  }
}

}  // namespace tandem::cuda
