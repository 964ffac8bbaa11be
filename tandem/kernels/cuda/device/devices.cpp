#include "tandem/kernels/cuda/device/devices.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace tandem::cuda {

namespace {

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

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
                    properties.minor, uuid_text(properties.uuid)});
  }
  return list;
}

}  // namespace tandem::cuda
