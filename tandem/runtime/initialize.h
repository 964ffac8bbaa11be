// Starting values of persistent buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tandem/base/thread_pool.h"
#include "tandem/compile/executable.h"

namespace tandem {

// A piece's init is "zeros", "ones" or "normal:STD". Element i of a tensor is a pure function of (seed, name,
// i), whichever ranks hold it in which pieces; made in fp32 and rounded to the buffer's type. `buffer` holds
// the piece, from its offset on.
void fill_initial(std::span<std::byte> buffer, DType dtype, const Piece& piece, uint64_t seed,
                  ThreadPool& pool);

// Stores fp32 values in another floating type, rounded to nearest even.
void round_to(std::span<std::byte> dst, DType dtype, std::span<const std::byte> src_f32, ThreadPool& pool);

}  // namespace tandem
