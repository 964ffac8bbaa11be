#include "tandem/base/utf8.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

namespace tandem {
namespace {

// The second byte keeps out longer forms than needed, halves of surrogate pairs, and what lies beyond the
// last character.
bool may_follow(uint8_t first, uint8_t second) {
  switch (first) {
    case 0xe0: return second >= 0xa0 && second <= 0xbf;
    case 0xed: return second >= 0x80 && second <= 0x9f;
    case 0xf0: return second >= 0x90 && second <= 0xbf;
    case 0xf4: return second >= 0x80 && second <= 0x8f;
    default: return (second & 0xc0) == 0x80;
  }
}

}  // namespace

FirstCharacter first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {.bytes = 1, .whole = true};
  if (first < 0xc2 || first > 0xf4) return {.bytes = 1, .whole = false};
  const size_t wanted = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  size_t have = 1;
  while (have < wanted && have < text.size() && may_follow(have == 1 ? first : 0x80, byte(have))) ++have;
  return {.bytes = have, .whole = have == wanted};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    uint64_t eight = 0;
    while (text.size() >= 8 && (std::memcpy(&eight, text.data(), 8), (eight & 0x8080808080808080ull) == 0))
      text.remove_prefix(8);
    if (text.empty()) break;
    const FirstCharacter first = first_character(text);
    if (!first.whole) return false;
    text.remove_prefix(first.bytes);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const FirstCharacter character = first_character(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (first == '\n') {
      out += "\\n";
    } else if (!character.whole || first < 0x20 || first == 0x7f) {
      out += fmt::format("\\x{:02x}", first);
    } else {
      out += text.substr(0, character.bytes);
    }
    text.remove_prefix(character.whole ? character.bytes : 1);
  }
  return out;
}

}  // namespace tandem
