#include "tandem/ir/verify.h"

#include <vector>

#include "tandem/base/error.h"
#include "tandem/ir/infer.h"
#include "tandem/ir/op_table.h"

namespace tandem {
namespace {

// Values that live in the same bytes share a storage id: an aliasing output takes its input's.
class Storage {
 public:
  explicit Storage(const Graph& graph) {
    for (int32_t id = 0; id < graph.num_nodes(); ++id) {
      const Node& node = graph.node(id);
      first_.push_back(storage_.size());
      for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) {
        // A view of part of a buffer is written apart from the others; Join brings them together again.
        const int input = node.op == Op::View ? -1 : aliased_input(node, i);
        storage_.push_back(input >= 0 ? of(node.inputs[static_cast<size_t>(input)]) : num_++);
      }
    }
  }
  size_t of(Value value) const {
    return storage_[first_[static_cast<size_t>(value.node)] + static_cast<size_t>(value.index)];
  }
  size_t num() const { return num_; }

 private:
  std::vector<size_t> first_;    // by node: where its outputs are in storage_
  std::vector<size_t> storage_;  // by value
  size_t num_ = 0;
};

}  // namespace

void verify(const Graph& graph, std::string_view where) {
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    for (Value input : node.inputs) {
      TANDEM_CHECK(input.valid() && input.node < id, "after {}: %{} {} reads a value that does not exist yet",
                   where, id, op_name(node.op));
      TANDEM_CHECK(input.index < static_cast<int>(graph.node(input.node).outputs.size()),
                   "after {}: %{} reads output {} of %{}", where, id, input.index, input.node);
    }
    const std::string wrong = complaint(op_info(node.op), node.inputs.size(), node.attrs);
    TANDEM_CHECK(wrong.empty(), "after {}: %{} {}: {}", where, id, op_name(node.op), wrong);
    if (is_leaf(node.op)) {
      TANDEM_CHECK(!node.name.empty() && graph.find(node.name).node == id,
                   "after {}: leaf name '{}' is empty or taken", where, node.name);
      TANDEM_CHECK(node.outputs.size() == 1, "after {}: leaf '{}' must have one output", where, node.name);
    } else {
      TANDEM_CHECK(infer_outputs(node.op, input_types(graph, node), node.attrs) == node.outputs,
                   "after {}: %{} {} carries types that do not follow from its inputs", where, id,
                   op_name(node.op));
    }
  }
  for (const GraphOutput& output : graph.outputs()) {
    TANDEM_CHECK(output.value.valid() && output.value.node < graph.num_nodes(), "after {}: output '{}'",
                 where, output.name);
  }

  // An in-place op ends the life of every other value in those bytes.
  const Storage storage(graph);
  std::vector<Value> current(storage.num());  // by storage: who wrote its bytes last; not valid if nobody has
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    for (Value input : node.inputs) {
      const Value writer = current[storage.of(input)];
      TANDEM_CHECK(!writer.valid() || writer <= input,
                   "after {}: %{} {} reads %{}, whose bytes %{} has overwritten", where, id, op_name(node.op),
                   input.node, writer.node);
    }
    if (node.op == Op::Reshape || node.op == Op::Send) continue;  // the bytes stay what they are
    for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) {
      if (aliased_input(node, i) >= 0) current[storage.of({id, i})] = {id, i};
    }
  }
}

}  // namespace tandem
