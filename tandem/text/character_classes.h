// What the patterns of tokenizers ask of a character, from a table of all of them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

namespace tandem {

inline constexpr uint8_t kLetter = 1, kNumber = 2, kSpace = 4, kLineEnd = 8;
inline constexpr uint8_t kUpper = 16;  // Lu Lt Lm Lo M
inline constexpr uint8_t kLower = 32;  // Ll Lm Lo M

// Of Unicode 16, as the regular expressions have it (newer_unicode.h).
class CharacterClasses {
 public:
  static const CharacterClasses& get();
  uint8_t operator[](uint32_t character) const { return (*table_)[character]; }

 private:
  CharacterClasses();
  std::unique_ptr<std::array<uint8_t, 0x110000>> table_;
};

}  // namespace tandem
