#include "tandem/kernels/cuda/nccl/nccl_library.h"

namespace tandem::cuda {

const NcclLibrary& nccl() {
  static const NcclLibrary library;
  return library;
}

}  // namespace tandem::cuda
