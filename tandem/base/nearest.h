// "Did you mean": the candidate closest to a mistyped word, for config keys, enum values and flags.
#pragma once

#include <span>
#include <string_view>

namespace tandem {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

// The closest candidate; the earliest one of several. `candidates` must not be empty.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace tandem
