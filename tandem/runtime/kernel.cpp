#include "tandem/runtime/kernel.h"

#include "tandem/base/error.h"

namespace tandem {

void KernelRegistry::add(Kernel kernel) { kernels_.push_back(std::move(kernel)); }

const Kernel& KernelRegistry::choose(const CallSignature& call) const {
  for (const Kernel& kernel : kernels_) {
    if (kernel.op == call.op && kernel.supports(call)) return kernel;
  }
  throw DeviceError("{}: no kernel supports this call ({} inputs, first of type {})", op_name(call.op),
                    call.in.size(), call.in.empty() ? "none" : dtype_name(call.in[0].dtype));
}

const Kernel& KernelRegistry::by_name(std::string_view name) const {
  for (const Kernel& kernel : kernels_) {
    if (kernel.name == name) return kernel;
  }
  throw DeviceError("kernel '{}': not in this build", name);
}

std::vector<const Kernel*> KernelRegistry::for_op(Op op) const {
  std::vector<const Kernel*> found;
  for (const Kernel& kernel : kernels_) {
    if (kernel.op == op) found.push_back(&kernel);
  }
  return found;
}

}  // namespace tandem
