// A look at JSON text before a parser sees it.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

inline constexpr int kMostJsonDepth = 64;  // no file of ours comes near it

// Throws DataError starting with `origin` where arrays and objects are nested deeper: to print or to free
// such a value takes a call within a call for each level, and would run out of stack.
void check_json_depth(std::string_view text, const std::string& origin);

}  // namespace tandem
