// What is made once for each device, when it is first asked for: a library's handle and the plans made with
// it.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>

#include "tandem/kernels/cuda/device/cuda_check.h"

namespace tandem::cuda {

// The one of the calling thread's device.
template <typename T>
T& per_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  static std::mutex mutex;
  // Never destroyed: when the process ends, the library may go first.
  static auto& devices = *new std::map<int, std::unique_ptr<T>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<T>& made = devices[device];
  if (made == nullptr) made = std::make_unique<T>();
  return *made;
}

}  // namespace tandem::cuda
