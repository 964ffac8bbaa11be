// The driver's management library (NVML): what a GPU's sensors say. It is loaded at run time; where it is
// missing, or does not know the GPU, there are no figures and there is no error.
#pragma once

#include "tandem/runtime/device_health.h"

namespace tandem::cuda {

// Starts to watch GPU number `index`, as CUDA counts them, until the last copy of the probe is gone. A query
// takes a millisecond and more, so they are made once a second by a thread of their own.
HealthProbe watch_gpu(int index);

}  // namespace tandem::cuda
