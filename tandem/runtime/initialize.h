// Starting values of persistent buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tandem/base/thread_pool.h"
#include "tandem/ir/graph.h"

namespace tandem {

// `init` is "zeros", "ones" or "normal:STD". Element i of a tensor is a pure function of (seed, key, i), made
// in fp32 and rounded to the tensor's type.
void fill_initial(std::span<std::byte> dst, const TensorType& type, std::string_view init, uint64_t seed,
                  std::string_view key, ThreadPool& pool);

// Stores fp32 values in another floating type, rounded to nearest even.
void round_to(std::span<std::byte> dst, DType dtype, std::span<const std::byte> src_f32, ThreadPool& pool);

}  // namespace tandem
