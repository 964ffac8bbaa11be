// Brings the occurrences of each token id together, in ascending order of position: a stable radix sort on
// the device, whose result does not depend on the order in which threads run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace tandem::cuda {

struct Occurrence {
  int row;  // of the table; one past the last for an id that the table does not hold
  int position;
};

// A table of `num_rows` rows that holds the ids from `first` on.
struct TokenIds {
  const int32_t* ids;
  int count;
  int64_t first;
  int num_rows;
};

size_t sort_workspace(int64_t num_ids);

// The sorted occurrences, all `count` of them, lie in the workspace (64-byte aligned) once the queue got
// there.
const Occurrence* sort_by_row(const TokenIds& ids, std::byte* workspace, cudaStream_t queue);

}  // namespace tandem::cuda
