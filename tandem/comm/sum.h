// The one place where numbers of several ranks are added, so that every implementation gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tandem/base/dtype.h"

namespace tandem {

// What becomes of the numbers that are in the destination of a sum.
enum class SumInto : uint8_t {
  Overwrite,
  Add,      // dst + (part 0 + part 1 + ...)
  AddEach,  // ((dst + part 0) + part 1) + ...: as if the parts had come one after the other
};

// dst[i] = parts[0][i] + parts[1][i] + ..., in that order, or what `into` says; fp32 for 16-bit and fp32
// parts, f64 for f64, int32 for int32; rounded once into dst. dst may be one of the parts where the types
// have the same size. Int32 is summed into int32 only, and AddEach into the type of the parts.
void sum_parts(std::span<const std::byte* const> parts, DType part_dtype, std::byte* dst, DType dst_dtype,
               int64_t num_elems, SumInto into);

}  // namespace tandem
