// What this GPU can do at best, measured: the ceilings that profiles compare kernels with.
#pragma once

#include "tandem/base/dtype.h"

namespace tandem::cuda {

double measure_matrix_peak(DType storage);  // FLOP/s of a large product of random numbers
double measure_copy();                      // bytes/s, read plus written

}  // namespace tandem::cuda
