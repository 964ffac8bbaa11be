// Rebuilding a graph node by node, the way every pass here works: old values map to new ones, and what a
// pass does not change is copied.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/ir/graph.h"

namespace tandem {

class Rewrite {
 public:
  explicit Rewrite(const Graph& old_graph) : old_(old_graph) {}

  Graph& graph() { return new_; }
  Value at(Value old_value) const;  // its counterpart; a value not there yet is a bug
  bool has(Value old_value) const { return map_.contains(old_value); }
  void set(Value old_value, Value new_value) { map_[old_value] = new_value; }
  int32_t copy(int32_t old_id);    // copies the node with mapped inputs, types inferred anew
  void copy_leaf(int32_t old_id);  // copies a leaf unless it is there already
  Graph finish();                  // maps the outputs and returns the new graph

 private:
  const Graph& old_;
  Graph new_;
  std::map<Value, Value> map_;
};

// The first value that lived in these bytes: views and in-place ops lead back to it.
Value storage_of(const Graph& graph, Value value);

// These nodes and all that they are made of.
std::set<int32_t> with_sources(const Graph& graph, std::set<int32_t> nodes);

// For every value, the nodes that read it, in order.
std::map<Value, std::vector<int32_t>> readers(const Graph& graph);

}  // namespace tandem
