#include "tandem/compile/row_sections.h"

#include <numeric>

#include "tandem/compile/passes/column_sections.h"
#include "tandem/ir/op_table.h"

namespace tandem {
namespace {

// Back from a reader of packed columns to the linear that makes them; invalid where something else does.
Value weight_behind(const Graph& graph, Value value) {
  for (;;) {
    const Node& node = graph.node(value.node);
    switch (op_info(node.op).split) {
      case Split::Heads:
      case Split::Pointwise:
      case Split::Reshape: value = node.inputs[0]; continue;
      case Split::Linear: {
        const Value weight = node.inputs[1];
        const bool rows_are_columns = node.attrs.integer("trans_b") == 1;
        return rows_are_columns && graph.node(weight.node).op == Op::Param ? weight : Value{};
      }
      default: return {};
    }
  }
}

}  // namespace

RowSections row_sections(const Graph& forward) {
  RowSections found;
  for (int32_t id = 0; id < forward.num_nodes(); ++id) {
    const Node& node = forward.node(id);
    std::vector<int64_t> sections;
    if (op_info(node.op).split == Split::Heads) sections = qkv_sections(forward, id);
    if (op_info(node.op).split == Split::GateUp) sections.assign(2, node.outputs[0].shape.last());
    if (sections.empty()) continue;
    const Value weight = weight_behind(forward, node.inputs[0]);
    if (!weight.valid()) continue;
    const int64_t rows = std::accumulate(sections.begin(), sections.end(), int64_t{0});
    if (forward.type(weight).shape[0] == rows) found.try_emplace(forward.node(weight.node).name, sections);
  }
  return found;
}

}  // namespace tandem
