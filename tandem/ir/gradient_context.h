// What a gradient rule of the op table works with. Rules run in reverse order of the forward nodes; each
// takes the gradients that have reached its node's outputs and sends gradients on to its inputs.
#pragma once

#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/ir/graph.h"

namespace tandem {

// A table that is both embedding and head gets a second gradient state for the embedding where the two are to
// be summed apart, as the ranks at both ends of a pipeline do: "grad:<name>" and "grad:<name>:embedding".
inline constexpr std::string_view kEmbeddingPart = ":embedding";

// How gradients of parameters are stored (those of f64 parameters are f64).
struct GradientTypes {
  DType block_matrices = DType::F32;
  DType others = DType::F32;
};

class GradientContext {
 public:
  GradientContext(Graph& graph, GradientTypes types, bool split_tied);

  Graph& graph() { return graph_; }
  const Node& node(int32_t id) const { return graph_.node(id); }
  Value input(int32_t id, size_t i = 0) const { return graph_.node(id).inputs[i]; }
  Value dy(int32_t id) const { return grad({id, 0}); }  // of its first output

  Value grad(Value value) const;          // the gradient that has reached a value, or invalid
  void add(Value value, Value gradient);  // sends a gradient on, summing where several arrive
  bool wants(Value value) const;          // false for inputs and for values no parameter leads to
  bool is_param(Value value) const { return graph_.node(value.node).op == Op::Param; }
  bool is_frozen(Value value) const { return is_param(value) && !wants(value); }
  // The current value of a parameter's gradient buffer. A table that is also a head may have two. Of a frozen
  // one, which an op makes along with others: zeros that are forgotten.
  enum class Part : uint8_t { Whole, Embedding };
  Value accumulator(Value param, Part part = Part::Whole);
  void set_accumulator(Value param, Value updated, Part part = Part::Whole);
  Part part_for_embedding(Value table) const;
  // Appends a node in backward, in the block being differentiated.
  Value emit(Op op, std::vector<Value> inputs, Attrs attrs = {});

  void enter(int32_t block) { block_ = block; }
  void mark_reachable(Value value) { reachable_[value] = true; }

 private:
  Graph& graph_;
  GradientTypes types_;
  int32_t block_ = kNoBlock;
  std::map<Value, Value> grads_;
  std::map<std::pair<Value, Part>, Value> accumulators_;
  std::map<Value, bool> reachable_;
  std::set<Value> split_tables_;  // tables whose embedding has a buffer of its own
};

}  // namespace tandem
