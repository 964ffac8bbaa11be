#include "tandem/kernels/cuda/devices.h"

#include <cuda_runtime_api.h>

namespace tandem::cuda {

bool is_built() { return true; }

std::string build_version() {
  return std::to_string(CUDART_VERSION / 1000).append(".").append(std::to_string(CUDART_VERSION % 1000 / 10));
}

std::vector<Device> devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess)
    return {};  // no driver or no GPU: not an error, there are none
  std::vector<Device> list;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    list.push_back({properties.name, static_cast<int64_t>(properties.totalGlobalMem), properties.major,
                    properties.minor});
  }
  return list;
}

}  // namespace tandem::cuda
