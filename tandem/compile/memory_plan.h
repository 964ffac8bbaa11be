// Where every value lives. Values that must share bytes (in-place ops, views) form one buffer; a pointwise op
// takes over a dying input's buffer; the rest get offsets so that buffers alive at the same time never
// overlap. The plan is exact because the arenas are allocated from it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/compile/executable.h"
#include "tandem/ir/graph.h"

namespace tandem {

inline constexpr int64_t kSliceAlignment = 64;  // a cache line, and the widest vector

// Offsets of parameters and states, shared by all executables of a step: the first graph to name a leaf
// places it.
class PersistentLayout {
 public:
  void add(const Graph& graph);
  const Slice& at(const std::string& name) const;
  const std::vector<Persistent>& items() const { return items_; }
  const ArenaSizes& sizes() const { return sizes_; }

 private:
  std::vector<Persistent> items_;
  std::map<std::string, size_t> index_;
  ArenaSizes sizes_{};
};

struct MemoryPlan {
  std::map<Value, Slice> slices;
  int64_t activation_bytes = 0;
  int64_t lower_bound = 0;          // most bytes alive at once: no assignment can be smaller
  std::vector<int64_t> live_bytes;  // alive at each node
};

MemoryPlan plan_memory(const Graph& graph, const PersistentLayout& layout);

}  // namespace tandem
