// Answers where Tandem was built without CUDA.
#include "tandem/base/error.h"
#include "tandem/kernels/cuda/backend.h"
#include "tandem/kernels/cuda/device/devices.h"

namespace tandem::cuda {

bool is_built() { return false; }
std::string build_version() { return {}; }
std::vector<Device> devices() { return {}; }

Backend make_backend(KernelRegistry /*host*/, const WorldInfo& /*world*/) {
  throw ConfigError(
      "device: cuda: this program was built without CUDA; build it with scripts/build --gpus all where nvcc "
      "is found, or use cpu");
}

}  // namespace tandem::cuda
