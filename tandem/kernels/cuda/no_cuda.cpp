#include "tandem/kernels/cuda/devices.h"

namespace tandem::cuda {

bool is_built() { return false; }
std::string build_version() { return {}; }
std::vector<Device> devices() { return {}; }

}  // namespace tandem::cuda
