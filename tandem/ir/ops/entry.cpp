#include "tandem/ir/ops/entry.h"

namespace tandem::ops {

int64_t all_bytes(const Node& node, std::span<const TensorType> in) {
  int64_t bytes = 0;
  for (const TensorType& type : in) bytes += type.bytes();
  for (const TensorType& type : node.outputs) bytes += type.bytes();
  return bytes;
}

OpInfo unsplit(Op op, std::string_view name, std::string_view meaning, StatedList<InputInfo> inputs,
               StatedList<OutputInfo> outputs, StatedList<AttrInfo> attrs, InferRule infer, Remake remake,
               GradientRule gradient) {
  return {.op = op,
          .name = name,
          .meaning = meaning,
          .kind = OpKind::Kernel,
          .inputs = std::move(inputs),
          .outputs = std::move(outputs),
          .attrs = std::move(attrs),
          .infer = infer,
          .cost = kMovesItsBytes,
          .remake = remake,
          .split = Split::Never,
          .gradient = gradient};
}

}  // namespace tandem::ops
