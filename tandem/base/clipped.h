// Lines for people: what a file holds in place of a name may be a megabyte long.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

inline constexpr size_t kMostLineBytes = 2000;

// The line, or its beginning and its end with a note of how much is left out between them. The end is kept
// because it says what to do.
std::string clipped(std::string_view line);

}  // namespace tandem
