// The gradient of every op: one table from Op to a function that appends backward nodes.
#pragma once

#include <map>

#include "tandem/ir/graph.h"

namespace tandem {

// What a gradient rule may do. Rules run in reverse order of the forward nodes.
class GradientContext {
 public:
  GradientContext(Graph& graph, DType grad_dtype) : graph_(graph), grad_dtype_(grad_dtype) {}

  Graph& graph() { return graph_; }
  Value grad(Value value) const;          // the gradient that has reached a value, or invalid
  void add(Value value, Value gradient);  // sends a gradient on, summing where several arrive
  bool wants(Value value) const;          // false for inputs and for values no parameter leads to
  bool is_param(Value value) const { return graph_.node(value.node).op == Op::Param; }
  Value accumulator(Value param);  // the current value of a parameter's gradient buffer
  void set_accumulator(Value param, Value updated) { accumulators_[param] = updated; }
  Value emit(Op op, std::vector<Value> inputs,
             Attrs attrs = {});  // in backward, in the block being differentiated
  void enter(int32_t block) { block_ = block; }
  void mark_reachable(Value value) { reachable_[value] = true; }

 private:
  Graph& graph_;
  DType grad_dtype_;
  int32_t block_ = kNoBlock;
  std::map<Value, Value> grads_;
  std::map<Value, Value> accumulators_;
  std::map<Value, bool> reachable_;
};

using GradientRule = void (*)(GradientContext& context, int32_t node);
GradientRule gradient_rule(Op op);  // null for ops that have none

}  // namespace tandem
