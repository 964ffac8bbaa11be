// The sum of every rank's part of a buffer, as communicator.h has it: in fp32, in the order of the ranks,
// rounded once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tandem/base/dtype.h"

namespace tandem::cuda {

struct PartSum {
  const void* parts;  // one after the other; this rank's is not read there
  const void* own;    // but here
  int rank;
  int num_parts;
  DType part_dtype;
  void* dst;  // may be `own`
  DType dst_dtype;
  int64_t elems;  // of a part
  bool accumulate;
};

void sum_parts(const PartSum& sum, cudaStream_t queue);

}  // namespace tandem::cuda
