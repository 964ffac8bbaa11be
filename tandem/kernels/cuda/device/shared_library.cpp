#include "tandem/kernels/cuda/device/shared_library.h"

#include <dlfcn.h>

#include "tandem/base/error.h"

namespace tandem::cuda {

SharedLibrary::SharedLibrary(std::string name) : name_(std::move(name)) {
  handle_ = dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL);
  const std::string first_reason = handle_ == nullptr ? dlerror() : "";
  if (handle_ == nullptr)
    handle_ = dlopen((TANDEM_CUDA_LIBRARY_DIR "/" + name_).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr)
    throw DeviceError("{}: not found ({}); install it, or name its folder in LD_LIBRARY_PATH", name_,
                      first_reason);
}

void* SharedLibrary::address(const char* symbol) const {
  void* found = dlsym(handle_, symbol);
  if (found == nullptr) throw DeviceError("{}: has no function {}; install a newer version", name_, symbol);
  return found;
}

}  // namespace tandem::cuda
