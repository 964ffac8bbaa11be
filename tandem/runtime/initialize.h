// Starting values of persistent buffers, and weights from their masters, as every device makes them: to the
// same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tandem/base/thread_pool.h"
#include "tandem/compile/executable.h"

namespace tandem {

void fill_zeros(std::span<std::byte> dst, ThreadPool& pool);

// What a piece holds at the start. Its elements lie in runs: neighbours in the tensor as in the buffer. Run r
// begins at element offset + r * run_elems of the buffer, and at element first + r * stride of the tensor.
struct StartingValues {
  int64_t offset;
  int64_t num_runs, run_elems;
  int64_t first, stride;
  bool normal;  // element i of the tensor is std * normal i of the random stream; else all are ones
  float std;
  uint64_t seed, stream;  // of the tensor's name
};

// A piece's init is "ones" or "normal:STD"; zeros are for fill_zeros. Element i of a tensor is a pure
// function of (seed, name, i), whichever ranks hold it in which pieces; made in fp32 and stored as round_to
// does.
StartingValues starting_values(const Piece& piece, uint64_t seed);

// `buffer` holds the piece, from its offset on.
void fill_initial(std::byte* buffer, DType dtype, const Piece& piece, uint64_t seed, ThreadPool& pool);

// Stores fp32 values as weights are: bf16 and i16 get the high and the low halves of base/split_float.h,
// other types are rounded to nearest even.
void round_to(std::span<std::byte> dst, DType dtype, std::span<const std::byte> src_f32, ThreadPool& pool);

}  // namespace tandem
