// The CUDA devices of this machine. Where Tandem was built without CUDA, no_cuda.cpp answers instead.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::cuda {

struct Device {
  std::string name;
  int64_t memory_bytes = 0;
  int major = 0;  // compute capability
  int minor = 0;
  std::string uuid;  // "GPU-" and 32 hex digits in groups, as nvidia-smi shows it
};

bool is_built();
std::string build_version();    // "13.0"; empty without CUDA
std::vector<Device> devices();  // none without CUDA, a driver or a GPU

}  // namespace tandem::cuda
