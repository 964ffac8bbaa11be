// fp32 numbers that lie in halves (base/split_float.h), joined on their way into a checkpoint: a few at a
// time, so that saving needs no second copy of them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tandem/store/store.h"

namespace tandem {

// As digest_and_copy of the joined numbers.
std::vector<std::string> digest_and_join(std::span<const std::byte> high, std::span<const std::byte> low,
                                         std::span<std::byte> dst, int64_t block);

void write_joined(ObjectWriter& file, std::span<const std::byte> high, std::span<const std::byte> low);

}  // namespace tandem
