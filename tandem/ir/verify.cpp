#include "tandem/ir/verify.h"

#include <map>
#include <set>

#include "tandem/base/error.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

// Values that live in the same bytes share a storage id: an aliasing output takes its input's.
class Storage {
 public:
  explicit Storage(const Graph& graph) {
    for (int32_t id = 0; id < graph.num_nodes(); ++id) {
      const Node& node = graph.node(id);
      for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) {
        // A view of part of a buffer is written apart from the others; Join brings them together again.
        const int input = node.op == Op::View ? -1 : aliased_input(node, i);
        storage_[{id, i}] = input >= 0 ? storage_.at(node.inputs[static_cast<size_t>(input)]) : next_++;
      }
    }
  }
  int of(Value value) const { return storage_.at(value); }

 private:
  std::map<Value, int> storage_;
  int next_ = 0;
};

}  // namespace

void verify(const Graph& graph, std::string_view where) {
  std::set<std::string> names;
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    for (Value input : node.inputs) {
      TANDEM_CHECK(input.valid() && input.node < id, "after {}: %{} {} reads a value that does not exist yet",
                   where, id, op_name(node.op));
      TANDEM_CHECK(input.index < static_cast<int>(graph.node(input.node).outputs.size()),
                   "after {}: %{} reads output {} of %{}", where, id, input.index, input.node);
    }
    if (is_leaf(node.op)) {
      TANDEM_CHECK(!node.name.empty() && names.insert(node.name).second,
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
  std::map<int, Value> current;  // storage -> the value its bytes hold now
  for (int32_t id = 0; id < graph.num_nodes(); ++id) {
    const Node& node = graph.node(id);
    for (Value input : node.inputs) {
      const auto it = current.find(storage.of(input));
      TANDEM_CHECK(it == current.end() || it->second <= input,
                   "after {}: %{} {} reads %{}, whose bytes %{} has overwritten", where, id, op_name(node.op),
                   input.node, it->second.node);
    }
    if (node.op == Op::Reshape || node.op == Op::Send) continue;  // the bytes stay what they are
    for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) {
      if (aliased_input(node, i) >= 0) current[storage.of({id, i})] = {id, i};
    }
  }
}

}  // namespace tandem
