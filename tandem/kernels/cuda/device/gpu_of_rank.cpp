#include "tandem/kernels/cuda/device/gpu_of_rank.h"

#include <algorithm>
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/base/system.h"

namespace tandem::cuda {

int share_gpus(const WorldInfo& world, int num_gpus) {
  if (num_gpus == 0 || world.local_world_size <= num_gpus) return 1;
  const std::string host = fmt::format("{}-{}", hostname(), world.local_rank / num_gpus);
  setenv("NCCL_HOSTID", host.c_str(), /*overwrite=*/0);
  const int gpu = world.local_rank % num_gpus;
  return (world.local_world_size - gpu + num_gpus - 1) / num_gpus;
}

int gpu_of_rank(const WorldInfo& world, int num_gpus, const Communicators* comms) {
  if (comms == nullptr) return 0;
  if (world.world_size > 1) return world.local_rank % std::max(1, num_gpus);
  const Communicator& threads = *comms->get(Axis::World);
  if (threads.size() > num_gpus) {
    throw ConfigError(
        "parallel.data: strategy dp needs a GPU for each of its {} threads, found {}; use "
        "parallel.strategy=ddp and tandem launch, whose processes may share one",
        threads.size(), num_gpus);
  }
  return threads.rank();
}

}  // namespace tandem::cuda
