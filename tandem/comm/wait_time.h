// How long a rank has stood waiting for others: who never waits is the one that all others wait for.
#pragma once

#include "tandem/comm/connect.h"

namespace tandem {

// Seconds so far, of threads of this rank, on all axes. What NCCL's kernels wait for on a GPU is not in it.
double wait_time_s(const Communicators& comms);

}  // namespace tandem
