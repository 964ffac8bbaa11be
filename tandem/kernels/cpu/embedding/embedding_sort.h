// Brings the rows that share a token id together, in ascending order of row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

struct IdRow {
  int32_t id;  // counted from the table's first
  int32_t row;
};

// The rows of one id, within a search limited to ids that begin before `limit`.
struct IdRun {
  std::span<const IdRow> rows;  // empty: no more
  int64_t end;
  int64_t limit;
};

// The ids a table holds.
struct IdRange {
  int64_t first;
  int64_t size;
  bool contains(int32_t id) const { return id >= first && id < first + size; }
};

// `table` is the whole vocabulary unless the op says where its shard begins. An id outside the whole
// vocabulary is a bug; all this can see of one outside a shard is that it is not negative.
IdRange checked_range(const TensorArg& ids, const TensorArg& table, const Attrs& attrs);

// The rows whose id is in range, by row of the table.
size_t sort_workspace(int64_t num_ids);
std::span<const IdRow> sort_by_id(const TensorArg& ids, IdRange range, std::span<std::byte> workspace);

// The runs that begin in sorted[begin, begin + size), one after the other.
IdRun first_run(std::span<const IdRow> sorted, int64_t begin, int64_t size);
IdRun next_run(std::span<const IdRow> sorted, const IdRun& run);

}  // namespace tandem::cpu
