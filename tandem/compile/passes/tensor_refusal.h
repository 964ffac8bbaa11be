// Why a model cannot be split over the tensor axis, told by the parameter that the user finds in the model.
#pragma once

#include <string>
#include <string_view>

#include "tandem/base/error.h"
#include "tandem/ir/graph.h"

namespace tandem {

class Refusal {
 public:
  Refusal(const Graph& graph, int64_t size) : graph_(graph), size_(size) {}

  template <typename... Args>
  [[noreturn]] void refuse(int32_t id, fmt::format_string<Args...> format, Args&&... args) const {
    throw ConfigError("{}: cannot be split over parallel.tensor = {}: {}; parallel.tensor: 1 works",
                      culprit(id), size_, fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void refuse_size(int32_t id, int64_t found, std::string_view what) const {
    throw ConfigError(
        "{}: {} {} do not divide over parallel.tensor = {}; use a multiple of {}, or a parallel.tensor that "
        "divides {}",
        culprit(id), found, what, size_, size_, found);
  }
  void check_divides(int32_t id, int64_t found, std::string_view what) const {
    if (found % size_ != 0) refuse_size(id, found, what);
  }

 private:
  // The parameter that a node, or the nearest before it, reads.
  std::string culprit(int32_t id) const {
    for (;;) {
      const Node& node = graph_.node(id);
      if (is_leaf(node.op)) return node.name;
      for (Value input : node.inputs) {
        if (graph_.node(input.node).op == Op::Param) return graph_.node(input.node).name;
      }
      if (node.inputs.empty()) return std::string(op_name(node.op));
      id = node.inputs[0].node;
    }
  }

  const Graph& graph_;
  int64_t size_;
};

}  // namespace tandem
