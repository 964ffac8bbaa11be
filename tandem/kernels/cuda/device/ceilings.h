// What this GPU can do at best, measured: the ceilings that profiles compare kernels with.
#pragma once

#include "tandem/base/dtype.h"

namespace tandem::cuda {

// FLOP/s of a large product of random numbers; 0 where the GPU has no memory left for it.
double measure_matrix_peak(DType storage);
double measure_copy();  // bytes/s, read plus written; 0 likewise
double measure_read();  // bytes/s of reads alone; 0 likewise

}  // namespace tandem::cuda
