// A device family as the rest of the system sees it: kernels, and the ceilings they are measured against.
// The command line names a concrete one; nothing below it does.
#pragma once

#include <functional>
#include <string>

#include "tandem/base/dtype.h"
#include "tandem/runtime/kernel.h"

namespace tandem {

struct Backend {
  std::string name;         // "cpu"
  std::string description;  // "avx512 + avx512_bf16"
  KernelRegistry kernels;
  std::function<double(DType storage, int num_threads)> peak_flops;  // measured, FLOP/s of matrix products
  std::function<double(int num_threads)> copy_bandwidth;             // measured, bytes/s read plus written
};

}  // namespace tandem
