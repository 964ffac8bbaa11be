// Starting values and rounded weights made on the GPU, to the bits of the CPU's (runtime/initialize.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tandem/base/dtype.h"
#include "tandem/runtime/initialize.h"

namespace tandem::cuda {

void fill_initial(void* buffer, DType dtype, const StartingValues& values, cudaStream_t queue);
void round_to(void* dst, DType dtype, const float* src, int64_t elems, cudaStream_t queue);

}  // namespace tandem::cuda
