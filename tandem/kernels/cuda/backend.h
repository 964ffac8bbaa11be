// NVIDIA GPUs as a Backend. Compiling a step for one needs no GPU: `tandem plan` works anywhere.
#pragma once

#include "tandem/comm/connect.h"
#include "tandem/runtime/backend.h"

namespace tandem::cuda {

// `host` has the kernels for work on the host's memory, `world` says which GPU is this process's. Throws
// ConfigError where Tandem was built without CUDA.
Backend make_backend(KernelRegistry host, const WorldInfo& world);

}  // namespace tandem::cuda
