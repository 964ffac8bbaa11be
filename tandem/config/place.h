// Where a message about a config points, and how it spells the values that would do.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "tandem/config/load.h"

namespace tandem {

// In the file or by a flag, rather than a default or derived.
bool was_given(const ResolvedConfig& resolved, std::string_view key);

// The start of a message about `key`: "config.yaml:12: train.batch", "--set train.batch", or the bare key
// when it was never given.
std::string place_of(const ResolvedConfig& resolved, std::string_view key);

// The start of a message about a relation between keys, which the message itself names: the place of the
// first the user wrote.
std::string place_of_first(const ResolvedConfig& resolved, std::initializer_list<std::string_view> involved);

// "24 or 32", or just the one that exists: `below` may be 0.
std::string either(int64_t below, int64_t above);

// The divisors of `whole` on both sides of `part`.
std::string nearest_divisors(int64_t whole, int64_t part);

}  // namespace tandem
