// One call of attention over a cache on the CPU: its sizes, and who sees what. A query is a (row, query head
// of the group of a key head), rows first.
#pragma once

#include "tandem/kernels/cpu/attention/attention.h"

namespace tandem::cpu::attention {

inline constexpr int64_t kQueryTile = 8;        // queries of a task
inline constexpr int64_t kPositionBlock = 256;  // positions of a task, at least
inline constexpr int64_t kMaxBlocks = 64;       // of one query: tasks of longer caches have more positions
inline constexpr float kNothingSeen = -1e30f;   // the maximum of no scores

// Positions [begin, end).
struct Positions {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

struct CachedAttention {
  int64_t batch, rows, heads, kv_heads, slots, head_dim;
  int64_t window;  // 0: none
  float scale, softcap;
  int64_t first = 0;   // position of row 0
  int64_t real = 0;    // rows that count
  int64_t splits = 0;  // blocks of positions

  int64_t group() const { return heads / kv_heads; }
  int64_t num_queries() const { return real * group(); }  // of a key head
  int64_t tiles() const { return (num_queries() + kQueryTile - 1) / kQueryTile; }
  int64_t qkv_stride() const { return (heads + 2 * kv_heads) * head_dim; }

  // Positions of a task.
  int64_t block() const { return round_up((slots + kMaxBlocks - 1) / kMaxBlocks, kPositionBlock); }
  int64_t num_blocks(int64_t positions) const { return (positions + block() - 1) / block(); }

  Positions seen_by(int64_t query) const {
    const int64_t own = first + query / group();
    return {window == 0 ? 0 : std::max<int64_t>(0, own + 1 - window), own + 1};
  }
  Positions seen_by_all() const { return {seen_by(0).begin, first + real}; }

  // Floats: of a query in scratch, of what a task leaves of it, of all that a worker has, of all tasks.
  int64_t query_stride() const { return round_up(head_dim, kLineFloats); }
  int64_t partial_stride() const { return query_stride() + kLineFloats; }
  int64_t scratch_elems() const { return kQueryTile * (query_stride() + block()); }
  int64_t partial_elems() const {
    return batch * kv_heads * tiles() * splits * kQueryTile * partial_stride();
  }
};

void add_cached_kernel(KernelRegistry& registry);

}  // namespace tandem::cpu::attention
