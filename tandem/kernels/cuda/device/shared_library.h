// A library of CUDA's that is loaded when it is first needed, so that the program starts, and the CPU backend
// runs, on machines that have none. Found by its name as the system finds libraries, then beside the toolkit
// this was built with.
#pragma once

#include <string>

namespace tandem::cuda {

class SharedLibrary {
 public:
  explicit SharedLibrary(std::string name);  // "libcublasLt.so.13"; DeviceError if it is nowhere

  // load<decltype(&cublasLtCreate)>("cublasLtCreate"); DeviceError if the library lacks it.
  template <typename Function>
  Function load(const char* symbol) const {
    return reinterpret_cast<Function>(address(symbol));
  }

 private:
  void* address(const char* symbol) const;
  std::string name_;
  void* handle_;  // never closed: kernels may run until the process ends
};

}  // namespace tandem::cuda
