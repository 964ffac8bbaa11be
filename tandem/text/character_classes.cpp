#include "tandem/text/character_classes.h"

#include <utf8proc.h>

#include "tandem/text/characters.h"
#include "tandem/text/newer_unicode.h"

namespace tandem {
namespace {

uint8_t class_of(utf8proc_category_t category) {
  switch (category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return kLetter | kUpper;
    case UTF8PROC_CATEGORY_LL: return kLetter | kLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return kLetter | kUpper | kLower;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return kUpper | kLower;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return kNumber;
    default: return 0;
  }
}

uint8_t class_of(std::string_view category) {
  if (category == "Lu") return kLetter | kUpper;
  if (category == "Ll") return kLetter | kLower;
  if (category.starts_with("L")) return kLetter | kUpper | kLower;
  if (category.starts_with("M")) return kUpper | kLower;
  return category.starts_with("N") ? kNumber : 0;
}

}  // namespace

CharacterClasses::CharacterClasses() : table_(std::make_unique<std::array<uint8_t, 0x110000>>()) {
  auto& table = *table_;
  for (uint32_t character = 0; character < table.size(); ++character) {
    table[character] = class_of(utf8proc_category(static_cast<utf8proc_int32_t>(character)));
    if (is_white_space(character)) table[character] |= kSpace;
  }
  for (const NewerCharacters& newer : newer_characters()) {
    for (uint32_t character = newer.first; character <= newer.last; ++character)
      table[character] = class_of(newer.category);
  }
  table['\r'] |= kLineEnd;
  table['\n'] |= kLineEnd;
}

const CharacterClasses& CharacterClasses::get() {
  static const CharacterClasses kClasses;
  return kClasses;
}

}  // namespace tandem
