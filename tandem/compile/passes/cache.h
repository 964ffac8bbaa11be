// A forward graph that goes on from what it has seen: generation.
//
// Changes: the tokens of a run are `rows` new ones instead of the whole context; the input "position" says
//   where they stand (ops/cached_attention.cpp); attention keeps keys and values in a cache, one for each
//   attention, of so many positions or, with a window, of what can still be seen; rotary and learned
//   positions count from there. Products know that they have few rows. The output is the logits of all rows,
//   f32; or nothing, and then what only the logits needed is gone, too.
// Keeps: everything that works on each token alone. What might look at other tokens in another way is
//   refused with ConfigError.
#pragma once

#include "tandem/compile/pass_info.h"
#include "tandem/ir/graph.h"

namespace tandem {

inline constexpr PassInfo kCachePass = {
    .name = "cache", .needs_before = {"precision", "inference"}, .needs_after = {"data"}};

struct CacheOptions {
  int64_t rows = 1;
  int64_t most_rows = 1;  // of any graph that uses the same cache
  int64_t positions = 0;  // that the cache has room for; 0: the context
  bool logits = true;
};

Graph with_cache(const Graph& forward, const CacheOptions& options);

}  // namespace tandem
