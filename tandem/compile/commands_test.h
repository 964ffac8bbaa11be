// What tests ask of a compiled step's commands.
#pragma once

#include <string>
#include <vector>

#include "tandem/compile/compile_step.h"

namespace tandem {

// Every op has a kernel of its name, without scratch.
inline KernelChoice choose_by_name(const Node& node, const std::vector<TensorType>&, bool) {
  return {std::string(op_name(node.op)), 0};
}

inline std::vector<const Command*> commands_of(const Executable& executable, Op op) {
  std::vector<const Command*> found;
  for (const Command& command : executable.commands) {
    if (command.op == op) found.push_back(&command);
  }
  return found;
}

inline bool same_place(const Slice& a, const Slice& b) { return a.arena == b.arena && a.offset == b.offset; }

}  // namespace tandem
