#include "tandem/compile/passes/documents.h"

#include "tandem/compile/rewrite.h"
#include "tandem/ir/infer.h"

namespace tandem {
namespace {

constexpr const char* kSegments = "segments";
constexpr const char* kPositions = "positions";

// The input that a node has to read to know about documents; null where it need not.
const char* asks_for(const Node& node) {
  switch (node.op) {
    case Op::Attention: return kSegments;
    case Op::Rope: return kPositions;
    case Op::Embedding: return node.inputs.size() > 2 ? kPositions : nullptr;
    default: return nullptr;
  }
}

class Separate {
 public:
  explicit Separate(const Graph& forward) : forward_(forward), rewrite_(forward) {}

  Graph run() {
    for (int32_t id = 0; id < forward_.num_nodes(); ++id) {
      const Node& node = forward_.node(id);
      if (is_leaf(node.op)) {
        rewrite_.copy_leaf(id);
        continue;
      }
      const char* input = asks_for(node);
      if (input == nullptr || node.attrs.integer_or(input, 0) != 0) {
        rewrite_.copy(id);
        continue;
      }
      std::vector<Value> inputs;
      for (Value value : node.inputs) inputs.push_back(rewrite_.at(value));
      inputs.push_back(input_named(input));
      Attrs attrs = node.attrs;
      attrs.set(input, int64_t{1});
      const Value made = append(rewrite_.graph(), node.op, inputs, attrs, node.block);
      for (int32_t i = 0; i < static_cast<int32_t>(node.outputs.size()); ++i)
        rewrite_.set({id, i}, {made.node, i});
    }
    return rewrite_.finish();
  }

 private:
  // Of the tokens' type. A model that asks for one itself may do so later on in its graph.
  Value input_named(const char* name) {
    const Value known = rewrite_.graph().find(name);
    if (known.valid()) return known;
    const Value own = forward_.find(name);
    if (own.valid()) {
      rewrite_.copy_leaf(own.node);
      return rewrite_.at(own);
    }
    const TensorType& type = forward_.type(forward_.find("tokens"));
    return rewrite_.graph().add({Op::Input, {}, {}, {type}, kNoBlock, Phase::Forward, name});
  }

  const Graph& forward_;
  Rewrite rewrite_;
};

}  // namespace

Graph separate_documents(const Graph& forward) { return Separate(forward).run(); }

}  // namespace tandem
