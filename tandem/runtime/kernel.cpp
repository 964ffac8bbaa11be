#include "tandem/runtime/kernel.h"

#include "tandem/base/error.h"

namespace tandem {
namespace {

std::string types_of(const std::vector<TensorType>& types) {
  std::string text;
  for (const TensorType& type : types)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", dtype_name(type.dtype), to_string(type.shape));
  return text;
}

}  // namespace

void KernelRegistry::add(Kernel kernel) { kernels_.push_back(std::move(kernel)); }

const Kernel& KernelRegistry::choose(const CallSignature& call) const {
  for (const Lack& lack : lacks_) {
    if (lack.op != call.op || !(lack.attr.empty() || call.attrs->has(lack.attr))) continue;
    throw ConfigError("device: this backend has no {}{}{} yet, which the model needs; use device = cpu",
                      op_name(call.op), lack.attr.empty() ? "" : " with ", lack.attr);
  }
  for (const Kernel& kernel : kernels_) {
    if (kernel.op == call.op && kernel.supports(call)) return kernel;
  }
  throw DeviceError("{}: no kernel supports this call: ({}) -> ({})", op_name(call.op), types_of(call.in),
                    types_of(call.out));
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
