// Where every value lives: persistent leaves in the arena of their category, gathered and received values in
// `communication`, copies to the host in `host`, the rest in `activations`. Transient leaves are among the
// rest, from the op that first writes them to the end of the step. Values that must share bytes
// (in-place ops, views) form one buffer; a pointwise op takes over a dying input's buffer; the rest get
// offsets so that buffers alive at the same time never overlap. What a stream beside the computation reads
// stays until that stream's next command of its kind, so that computation need not wait for it. The plan is
// exact because the arenas are allocated from it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tandem/compile/executable.h"
#include "tandem/ir/graph.h"

namespace tandem {

inline constexpr int64_t kSliceAlignment = 64;  // a cache line, and the widest vector

// Offsets of parameters and states, shared by all executables of a step: the first graph to name a leaf
// places it. A transient leaf has no place until the first graph that names it is planned.
class PersistentLayout {
 public:
  void add(const Graph& graph);
  const Slice& at(const std::string& name) const;
  bool is_placed(const std::string& name) const { return at(name).offset >= 0; }
  void place(const std::string& name, int64_t offset);  // a transient leaf, in the activations
  const std::vector<Persistent>& items() const { return items_; }
  const ArenaSizes& sizes() const { return sizes_; }

 private:
  std::vector<Persistent> items_;
  std::map<std::string, size_t> index_;
  ArenaSizes sizes_{};
};

struct MemoryPlan {
  std::map<Value, Slice> slices;
  ArenaSizes sizes{};               // of activations, communication and host: what lives during a run
  int64_t lower_bound = 0;          // most activations alive at once: no assignment can be smaller
  std::vector<int64_t> live_bytes;  // activations alive at each node
};

// Which stream a node runs on: 0 computes, the others run beside it.
inline constexpr int32_t kComputeStream = 0;
inline constexpr int32_t kDataStream = 1;  // collectives of the data axis
inline constexpr int32_t kSendStream = 2;  // to other pipeline stages
inline constexpr int32_t kCopyStream = 3;  // between memories
inline constexpr int32_t kNumStreams = 4;
int32_t stream_of(const Node& node);

// Graphs are planned in the order in which a step runs them: what the first makes transient, the others leave
// alone.
MemoryPlan plan_memory(const Graph& graph, PersistentLayout& layout);

}  // namespace tandem
