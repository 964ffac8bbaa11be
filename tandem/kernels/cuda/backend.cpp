#include "tandem/kernels/cuda/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tandem/kernels/cuda/device/ceilings.h"
#include "tandem/kernels/cuda/device/cuda_device.h"
#include "tandem/kernels/cuda/device/devices.h"
#include "tandem/kernels/cuda/device/gpu_of_rank.h"
#include "tandem/kernels/cuda/device/nvml.h"
#include "tandem/kernels/cuda/image/image_kernels.h"
#include "tandem/kernels/cuda/register.h"

namespace tandem::cuda {
namespace {

// Whether there is code for Hopper, and nothing but Hoppers to run it: no other GPU can.
bool is_for_hopper(const std::vector<Device>& found) {
  return has_hopper_code() &&
         std::all_of(found.begin(), found.end(), [](const Device& device) { return device.major == 9; });
}

// Attributes of ops that no kernel here knows yet.
constexpr Lack kLacks[] = {
    {Op::LinearCrossEntropy, "softcap"},
    {Op::LinearCrossEntropy, "scale"},
    {Op::LinearCrossEntropyGrad, "softcap"},
    {Op::LinearCrossEntropyGrad, "scale"},
    {Op::SquareSums, "exact"},
};

}  // namespace

bool has_hopper_code() { return TANDEM_CUDA_HAS_SM90A != 0; }

KernelRegistry all_kernels() {
  KernelRegistry registry;
  if (is_for_hopper(devices())) add_hopper_kernels(registry);
  add_matmul_kernels(registry);
  add_fp8_kernels(registry);
  add_norm_kernels(registry);
  add_fused_attention_kernels(registry);
  add_attention_kernels(registry);
  add_pointwise_kernels(registry);
  add_embedding_kernels(registry);
  add_loss_kernels(registry);
  add_image_kernels(registry);
  add_optimizer_kernels(registry);
  for (const Lack& lack : kLacks) registry.add_lack(lack);
  return registry;
}

Backend make_backend(KernelRegistry host, const WorldInfo& world) {
  Backend backend;
  const std::vector<Device> found = devices();
  backend.name = "cuda";
  backend.description = found.empty() ? "cuda, planned for a Hopper" : found.front().name;
  backend.kernels = all_kernels();
  backend.host_kernels = std::move(host);
  const auto num_gpus = static_cast<int>(found.size());
  const int sharing = share_gpus(world, num_gpus);
  if (sharing > 1) backend.description += fmt::format(", shared by {} ranks", sharing);
  backend.make_device = [world, num_gpus](ThreadPool& pool, const Communicators* comms) {
    return std::make_unique<CudaDevice>(gpu_of_rank(world, num_gpus, comms), pool, comms);
  };
  backend.fuse = {.chunk_logits_above = int64_t{256} << 20,
                  .chunk_bytes = int64_t{1} << 30,
                  .even_chunks = true,
                  .logit_steps = false,
                  .chunk_ragged_logits = true,
                  .gelu_of_product = true,
                  .gelu_grad = true,
                  .bias_sums = true,
                  .image_norms = true,
                  .attention_sums = is_for_hopper(found) ? hopper_sums_for_bias : nullptr,
                  .outputs_again = true};
  backend.has_fp8 = found.empty() || found.front().major * 10 + found.front().minor >= 89;
  backend.overwrites_gradients = true;
  // Where there is none, a plan is made for a GPU that is large enough.
  backend.memory_bytes = [found, sharing] {
    if (found.empty()) return std::numeric_limits<int64_t>::max();
    return found.front().memory_bytes / std::max(1, sharing);
  };
  backend.peak_flops = [](DType storage, int) { return measure_matrix_peak(storage); };
  backend.copy_bandwidth = [](int) { return measure_copy(); };
  backend.read_bandwidth = [](int) { return measure_read(); };
  backend.watch_health = [world, num_gpus](const Communicators* comms) {
    return watch_gpu(gpu_of_rank(world, num_gpus, comms));
  };
  if (!found.empty()) {
    backend.name_device = [world, found](const Communicators* comms) {
      const int index = gpu_of_rank(world, static_cast<int>(found.size()), comms);
      const Device& device = found[static_cast<size_t>(index)];
      return fmt::format("{} (GPU {}, {})", device.name, index, device.uuid);
    };
  }
  return backend;
}

}  // namespace tandem::cuda
