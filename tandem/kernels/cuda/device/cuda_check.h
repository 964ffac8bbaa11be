// Errors of the CUDA runtime as DeviceErrors. Kernel launches are checked with check_launch(), which waits
// for nothing.
#pragma once

#include <cuda_runtime_api.h>

#include "tandem/base/error.h"

namespace tandem::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw DeviceError("cuda: {}: {}", what, cudaGetErrorString(status));
}

inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

// Of the current device.
inline int device_attribute(cudaDeviceAttr name) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, name, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace tandem::cuda
