// Brings the rows that share a token id together, in ascending order of row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tandem/runtime/kernel.h"

namespace tandem::cpu {

struct IdRow {
  int32_t id;
  int32_t row;
};

// The rows of one id, within a search limited to ids that begin before `limit`.
struct IdRun {
  std::span<const IdRow> rows;  // empty: no more
  int64_t end;
  int64_t limit;
};

void check_ids(const TensorArg& ids, int64_t vocab);  // an id outside [0, vocab) is a bug

size_t sort_workspace(int64_t num_ids);
std::span<const IdRow> sort_by_id(const TensorArg& ids, int64_t vocab, std::span<std::byte> workspace);

// The runs that begin in sorted[begin, begin + size), one after the other.
IdRun first_run(std::span<const IdRow> sorted, int64_t begin, int64_t size);
IdRun next_run(std::span<const IdRow> sorted, const IdRun& run);

}  // namespace tandem::cpu
