#include "tandem/text/characters.h"

#include <utf8proc.h>

#include "tandem/base/utf8.h"

namespace tandem {

uint32_t take_character(std::string_view& text) {
  const size_t size = character_bytes(text[0]);
  auto character = static_cast<uint32_t>(static_cast<uint8_t>(text[0]));
  if (size > 1) character &= 0x7fu >> size;
  for (size_t i = 1; i < size; ++i)
    character = character << 6 | (static_cast<uint32_t>(static_cast<uint8_t>(text[i])) & 0x3f);
  text.remove_prefix(size);
  return character;
}

void append_character(uint32_t character, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

std::string valid_text(std::string_view text) {
  int64_t ignored = 0;
  return valid_text(text, ignored);
}

std::string valid_text(std::string_view text, int64_t& num_replaced) {
  if (is_utf8(text)) return std::string(text);
  std::string valid;
  while (!text.empty()) {
    const FirstCharacter first = first_character(text);
    valid += first.whole ? text.substr(0, first.bytes) : kReplacement;
    num_replaced += first.whole ? 0 : 1;
    text.remove_prefix(first.bytes);
  }
  return valid;
}

bool is_white_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_word(uint32_t character) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

}  // namespace tandem
