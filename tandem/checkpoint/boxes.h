// Arithmetic of boxes (tandem/base/box.h): how parts of a tensor relate to the whole and to each other.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/box.h"

namespace tandem {

bool contains(const Box& outer, const Box& inner);
Box intersect(const Box& a, const Box& b);  // of no elements where they do not meet
std::string to_string(const Box& box);      // "rows 0:4, cols 0:300"

// Two of them that have an element in common, if there are any.
std::optional<std::pair<Box, Box>> find_overlap(std::vector<Box> boxes);

}  // namespace tandem
