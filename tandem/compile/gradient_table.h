// The gradient of every op: one table from Op to a function that appends backward nodes.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "tandem/compile/passes/precision.h"
#include "tandem/ir/graph.h"

namespace tandem {

// What a gradient rule may do. Rules run in reverse order of the forward nodes.
class GradientContext {
 public:
  GradientContext(Graph& graph, const PrecisionPolicy& precision, bool split_tied);

  Graph& graph() { return graph_; }
  Value grad(Value value) const;          // the gradient that has reached a value, or invalid
  void add(Value value, Value gradient);  // sends a gradient on, summing where several arrive
  bool wants(Value value) const;          // false for inputs and for values no parameter leads to
  bool is_param(Value value) const { return graph_.node(value.node).op == Op::Param; }
  // The current value of a parameter's gradient buffer. A table that is also a head may have two.
  enum class Part : uint8_t { Whole, Embedding };
  Value accumulator(Value param, Part part = Part::Whole);
  void set_accumulator(Value param, Value updated, Part part = Part::Whole);
  Part part_for_embedding(Value table) const;
  Value emit(Op op, std::vector<Value> inputs,
             Attrs attrs = {});  // in backward, in the block being differentiated
  void enter(int32_t block) { block_ = block; }
  void mark_reachable(Value value) { reachable_[value] = true; }

 private:
  Graph& graph_;
  PrecisionPolicy precision_;
  int32_t block_ = kNoBlock;
  std::map<Value, Value> grads_;
  std::map<std::pair<Value, Part>, Value> accumulators_;
  std::map<Value, bool> reachable_;
  std::set<Value> split_tables_;  // tables whose embedding has a buffer of its own
};

using GradientRule = void (*)(GradientContext& context, int32_t node);
GradientRule gradient_rule(Op op);  // null for ops that have none

}  // namespace tandem
