// What a pass says of itself to the list of passes (pass_list.h). The other passes that it asks for are data,
// which pass_list_test.cpp holds against the order of the list.
#pragma once

#include <array>
#include <string_view>

namespace tandem {

struct PassInfo {
  using Names = std::array<std::string_view, 5>;  // empty ones at the end

  std::string_view name;  // in `tandem plan --dump after:NAME` and `--without NAME`
  Names needs_before{};   // passes whose work it builds on: they come before it
  Names needs_after{};    // passes that finish what it begins: they come after it
  bool optional = false;  // without it a step has the same result, but for rounding
};

}  // namespace tandem
