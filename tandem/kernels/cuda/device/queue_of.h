// Where a kernel is to put its work.
#pragma once

#include <cuda_runtime_api.h>

#include "tandem/runtime/kernel.h"

namespace tandem::cuda {

inline cudaStream_t queue_of(const Stream& stream) { return static_cast<cudaStream_t>(stream.queue()); }

}  // namespace tandem::cuda
