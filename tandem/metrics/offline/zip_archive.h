// A zip archive of a file that grows and one that is rewritten each time, neither of them packed: whoever
// opens it finds whole files at any moment. What is behind the growing file's bytes, its sums, the other file
// and the directory, is small, and is written anew whenever it has grown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::zip {

std::string growing_head(std::string_view name);  // the first bytes of the archive

struct Growing {
  std::string_view name;
  uint32_t crc = 0;
  uint64_t bytes = 0;
};
std::string tail(const Growing& growing, std::string_view name, std::string_view content);

uint32_t crc_of(std::string_view bytes, uint32_t begun = 0);

}  // namespace tandem::zip
