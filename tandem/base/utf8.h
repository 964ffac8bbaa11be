// Names and values end up in JSON and YAML, which are UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

bool is_utf8(std::string_view text);

// How many bytes at the front of a text are a character, or as much of one as is there; one where they begin
// none.
struct FirstCharacter {
  size_t bytes;
  bool whole;
};
FirstCharacter first_character(std::string_view text);  // not empty

// The same text for a message: bytes that are not UTF-8 and control characters as \xNN.
std::string printable(std::string_view text);

}  // namespace tandem
