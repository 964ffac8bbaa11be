#include "tandem/compile/passes/column_sections.h"

#include <fmt/format.h>

#include "tandem/ir/op_table.h"

namespace tandem {
namespace {

class SectionSearch {
 public:
  SectionSearch(const Graph& graph, const Refusal& refusal) : graph_(graph), refusal_(refusal) {}

  std::map<Value, Sections> run() {
    for (int32_t id = graph_.num_nodes() - 1; id >= 0; --id) visit(id);
    return std::move(asked_);
  }

 private:
  void visit(int32_t id) {
    const Node& node = graph_.node(id);
    switch (op_info(node.op).split) {
      case Split::Heads:
        refusal_.check_divides(id, node.attrs.integer("heads"), "heads");
        refusal_.check_divides(id, node.attrs.integer("kv_heads"), "key and value heads");
        ask(node.inputs[0], qkv_sections(graph_, id));
        return;
      case Split::GateUp: ask(node.inputs[0], Sections(2, node.outputs[0].shape.last())); return;
      case Split::Pointwise:
      case Split::Reshape:
        if (const auto it = asked_.find({id, 0}); it != asked_.end()) {
          for (Value input : node.inputs) ask(input, it->second);
        }
        return;
      case Split::Concat:
        if (const auto it = asked_.find({id, 0}); it != asked_.end()) ask_operands(id, it->second);
        return;
      case Split::Never:  // the others ask for nothing
      case Split::Input:
      case Split::Param:
      case Split::Rows:
      case Split::Mean:
      case Split::Sampled:
      case Split::Linear:
      case Split::Embedding:
      case Split::Loss: return;
    }
  }

  void ask(Value value, const Sections& sections) {
    const auto [it, fresh] = asked_.try_emplace(value, sections);
    if (!fresh && it->second != sections) {
      refusal_.refuse(value.node,
                      "its output is read as [{}] and as [{}] columns; give each reader its own linear",
                      fmt::join(it->second, ","), fmt::join(sections, ","));
    }
  }

  // Each operand of a concatenation takes the sections that it consists of.
  void ask_operands(int32_t concat, const Sections& sections) {
    size_t next = 0;
    for (Value input : graph_.node(concat).inputs) {
      const int64_t columns = graph_.type(input).shape.last();
      Sections own;
      int64_t left = columns;
      for (; left > 0 && next < sections.size(); left -= sections[next++]) own.push_back(sections[next]);
      if (left != 0) refusal_.refuse(input.node, "its {} columns straddle what is read together", columns);
      ask(input, own);
    }
  }

  const Graph& graph_;
  const Refusal& refusal_;
  std::map<Value, Sections> asked_;
};

}  // namespace

std::map<Value, Sections> column_sections(const Graph& graph, const Refusal& refusal) {
  return SectionSearch(graph, refusal).run();
}

Sections qkv_sections(const Graph& graph, int32_t attention_or_rope) {
  const Node& node = graph.node(attention_or_rope);
  const int64_t heads = node.attrs.integer("heads"), kv_heads = node.attrs.integer("kv_heads");
  const int64_t head_dim = graph.type(node.inputs[0]).shape.last() / (heads + 2 * kv_heads);
  return {heads * head_dim, kv_heads * head_dim, kv_heads * head_dim};
}

}  // namespace tandem
