// Which of a machine's GPUs a rank uses. Ranks take them in turn; where there are more ranks than GPUs,
// several processes share one.
#pragma once

#include <string>

#include "tandem/comm/connect.h"

namespace tandem::cuda {

// Tells NCCL, through the environment, that ranks on one GPU are on hosts of their own: it refuses two on one
// GPU of a host. Called before threads start. Returns how many ranks of this machine share this one's GPU.
int share_gpus(const WorldInfo& world, int num_gpus);

// Throws ConfigError where ranks that are threads of this process would have to share one, which NCCL cannot.
int gpu_of_rank(const WorldInfo& world, int num_gpus, const Communicators* comms);

}  // namespace tandem::cuda
