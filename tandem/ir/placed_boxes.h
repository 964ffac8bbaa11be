// Where the parts of a matrix lie in a flat buffer: the attribute `parts` of ops that take matrices out of
// such buffers or put them there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/box.h"

namespace tandem {

// `box` of the matrix lies, row-major, from element `offset` on.
struct PlacedBox {
  int64_t offset = 0;
  Box box;
  bool operator==(const PlacedBox&) const = default;
};

std::string print_placed(const std::vector<PlacedBox>& parts);  // "64:0:8,0:16;192:0:8,16:32"
std::vector<PlacedBox> parse_placed(std::string_view text);

}  // namespace tandem
