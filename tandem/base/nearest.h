// "Did you mean": the candidate closest to a mistyped word, for config keys, enum values and flags. Case and
// the difference of - and _ do not count, and the beginning of a name stands for the name.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace tandem {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
int edit_distance(std::string_view a, std::string_view b);

// How far a word is from a name that it may have meant.
int slip(std::string_view word, std::string_view name);
// Whether a slip is small enough to believe that the name was meant.
bool is_likely(std::string_view word, std::string_view name, int slip);

// The closest candidate; the earliest one of several. `candidates` must not be empty.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

// The same, or nothing where none is likely: a wrong suggestion is worse than none.
std::optional<std::string_view> likely(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace tandem
