#include "tandem/base/utf8.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

namespace tandem {
namespace {

// Bytes of the character that `text` begins with; 0 where it begins with none.
size_t character_size(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (size == 0 || first >= 0xf5 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Longer forms than needed, halves of surrogate pairs, and what lies beyond the last character.
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return size;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    uint64_t eight = 0;
    while (text.size() >= 8 && (std::memcpy(&eight, text.data(), 8), (eight & 0x8080808080808080ull) == 0))
      text.remove_prefix(8);
    if (text.empty()) break;
    const size_t size = character_size(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t size = character_size(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (first == '\n') {
      out += "\\n";
    } else if (size == 0 || first < 0x20 || first == 0x7f) {
      out += fmt::format("\\x{:02x}", first);
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return out;
}

}  // namespace tandem
