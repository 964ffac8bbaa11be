#include "tandem/kernels/cuda/fused_attention.h"

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tandem/base/error.h"
#include "tandem/kernels/cuda/cuda_check.h"
#include "tandem/kernels/cuda/queue.h"

namespace tandem::cuda {
namespace {

constexpr size_t kOldestVersion = 91002;  // 9.10.0 and 9.10.1 compute wrong results
constexpr size_t kAlignment = 256;
constexpr size_t kEngineBytes = 4096;  // an engine's counters

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

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

// The sequences whose gradient is made at once: a divisor of the batch.
FusedAttention grad_at_once(FusedAttention shape) {
  if (!shape.deterministic) return shape;
  const int64_t batch = shape.batch;
  for (int64_t parts = 1; parts <= batch; ++parts) {
    shape.batch = batch / parts;
    if (batch % parts == 0 && scores(shape) <= shape.max_scores) break;
  }
  return shape;
}

// How the gradient is made: slice by slice, with scratch for each queue, which take turns.
struct GradPlan {
  FusedAttention slice;
  int num_queues = 1;

  explicit GradPlan(const FusedAttention& shape) : slice(grad_at_once(shape)) {
    if (!slice.deterministic || scores(slice) < slice.halves_from) return;
    if (slice.heads % 2 == 0 && slice.kv_heads % 2 == 0) {
      slice.heads /= 2;
      slice.kv_heads /= 2;
      slice.row_parts *= 2;
    } else if (slice.batch % 2 == 0) {
      slice.batch /= 2;
    } else {
      return;
    }
    num_queues = 2;
  }
  size_t sums_bytes() const { return slice.deterministic ? 0 : query_sums_bytes(slice); }
  size_t bytes_of_queue() const {
    return aligned(statistics_bytes(slice) + sums_bytes() + grad_engine_bytes(slice));
  }
};

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

cudnnHandle_t make_handle() {
  cudnnHandle_t handle = nullptr;
  cudnn::check(cudnn::library().create(&handle), "cudnnCreate");
  return handle;
}

// A queue beside another, from a point of it until a later one, and the handle that launches into it.
struct SideQueue {
  Queue queue;
  Event forked, done;
  cudnnHandle_t handle = make_handle();

  SideQueue() { cudnn::check(cudnn::library().set_stream(handle, queue.get()), "cudnnSetStream"); }
  void fork(cudaStream_t from) const {
    forked.record(from);
    forked.hold(queue);
  }
  void join(cudaStream_t to) const {
    done.record(queue);
    done.hold(to);
  }
};

// A device's handle and the plans made with it. The lock also keeps the handle's stream for one launch.
struct DevicePlans {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  std::map<std::pair<Pass, FusedAttention>, Compiled> compiled;
  std::map<cudaStream_t, SideQueue> side_queues;  // of each its own: two may be captured at the same time

  DevicePlans() {
    const size_t version = cudnn::library().get_version();
    if (version < kOldestVersion)
      throw DeviceError("libcudnn.so.9: is version {}, but {} or newer is needed", version, kOldestVersion);
    handle = make_handle();
  }
  // Into the queue, or into the one beside it.
  void run(Pass pass, const FusedAttention& shape, std::span<void* const> pointers, void* scratch,
           cudaStream_t queue, const SideQueue* side = nullptr) {
    const std::lock_guard lock(mutex);
    const auto key = std::pair(pass, shape);
    auto found = compiled.find(key);
    if (found == compiled.end()) found = compiled.emplace(key, compile(pass, shape, handle)).first;
    if (side == nullptr) cudnn::check(cudnn::library().set_stream(handle, queue), "cudnnSetStream");
    found->second.plan.run(side == nullptr ? handle : side->handle, pointers, scratch);
  }
  const SideQueue& beside(cudaStream_t queue) {
    const std::lock_guard lock(mutex);
    return side_queues[queue];
  }
};

DevicePlans& current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  static std::mutex mutex;
  // Never destroyed: when the process ends, the library may go first.
  static auto& devices = *new std::map<int, std::unique_ptr<DevicePlans>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<DevicePlans>& plans = devices[device];
  if (plans == nullptr) plans = std::make_unique<DevicePlans>();
  return *plans;
}

std::byte* aligned_begin(std::span<std::byte> workspace, size_t needed) {
  TANDEM_CHECK(workspace.size() >= needed, "{} bytes of workspace, not {}", workspace.size(), needed);
  return reinterpret_cast<std::byte*>(aligned(reinterpret_cast<size_t>(workspace.data())));
}

}  // namespace

bool fused_attention_supported(const FusedAttention& s) {
  // Versions before 9.16 compute wrong gradients where the last block of keys is not full.
  return is_half(s.type) && s.time > 0 && s.time % 128 == 0 && s.head_dim % 8 == 0 && s.head_dim <= 128;
}

size_t fused_attention_workspace(const FusedAttention&) { return kAlignment + kEngineBytes; }

size_t fused_attention_grad_workspace(const FusedAttention& shape) {
  const GradPlan plan(shape);
  return kAlignment + static_cast<size_t>(plan.num_queues) * plan.bytes_of_queue();
}

void run_fused_attention(const FusedAttention& shape, const FusedAttentionTensors& tensors,
                         std::span<std::byte> workspace, cudaStream_t queue) {
  std::byte* scratch = aligned_begin(workspace, fused_attention_workspace(shape));
  std::byte* q = static_cast<std::byte*>(tensors.qkv);
  std::byte* k = q + shape.heads * shape.head_dim * dtype_bytes(shape.type);
  std::byte* v = k + shape.kv_heads * shape.head_dim * dtype_bytes(shape.type);
  const std::array<void*, 5> pointers = {q, k, v, tensors.out, tensors.lse};
  current_device().run(Pass::Forward, shape, pointers, scratch, queue);
}

void run_fused_attention_grad(const FusedAttention& shape, const FusedAttentionGradTensors& tensors,
                              std::span<std::byte> workspace, cudaStream_t queue) {
  const GradPlan plan(shape);
  const FusedAttention& slice = plan.slice;
  std::byte* scratch = aligned_begin(workspace, fused_attention_grad_workspace(shape));
  const int64_t head_bytes = shape.head_dim * dtype_bytes(shape.type);
  const int64_t k_offset = shape.heads * head_bytes, v_offset = k_offset + shape.kv_heads * head_bytes;
  const int64_t row_bytes = shape.width() * dtype_bytes(shape.type);
  DevicePlans& device = current_device();

  // Sequences from `begin` on, heads from `part` on.
  const auto run_slice = [&](int64_t begin, int64_t part, std::byte* row_sums, const SideQueue* side) {
    const auto at = [](void* tensor, int64_t bytes) { return static_cast<std::byte*>(tensor) + bytes; };
    const int64_t token = begin * shape.time, head = part * slice.heads, kv_head = part * slice.kv_heads;
    const int64_t q = token * row_bytes + head * head_bytes;
    const int64_t k = token * row_bytes + k_offset + kv_head * head_bytes;
    const int64_t v = k + v_offset - k_offset;
    const int64_t out = (token * shape.heads + head) * head_bytes;
    const int64_t lse = (begin * shape.heads + head) * shape.time * static_cast<int64_t>(sizeof(float));
    std::byte* dq_sums = row_sums + statistics_bytes(slice);
    const std::array<void*, 11> pointers = {at(tensors.qkv, q),
                                            at(tensors.qkv, k),
                                            at(tensors.qkv, v),
                                            at(tensors.out, out),
                                            at(tensors.dout, out),
                                            at(tensors.lse, lse),
                                            at(tensors.dqkv, q),
                                            at(tensors.dqkv, k),
                                            at(tensors.dqkv, v),
                                            row_sums,
                                            dq_sums};
    device.run(Pass::Backward, slice, std::span(pointers).first(slice.deterministic ? 10 : 11),
               dq_sums + plan.sums_bytes(), queue, side);
  };

  const SideQueue* side = plan.num_queues == 1 ? nullptr : &device.beside(queue);
  if (side != nullptr) side->fork(queue);
  bool aside = false;  // every other slice
  for (int64_t begin = 0; begin < shape.batch; begin += slice.batch) {
    for (int64_t part = 0; part < slice.row_parts; ++part) {
      if (aside) {
        run_slice(begin, part, scratch + plan.bytes_of_queue(), side);
      } else {
        run_slice(begin, part, scratch, nullptr);
      }
      aside = side != nullptr && !aside;
    }
  }
  if (side != nullptr) side->join(queue);
}

}  // namespace tandem::cuda
