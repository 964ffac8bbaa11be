// Unicode text one character at a time, in UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD, for what is no character

// The first character of valid UTF-8, which is taken from the front.
uint32_t take_character(std::string_view& text);
// Bytes of the character that begins with `first`.
inline size_t character_bytes(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}
void append_character(uint32_t character, std::string& text);

// The same text where it is UTF-8; else each longest run of bytes that begins a character but does not finish
// it, and each byte that begins none, becomes U+FFFD. Adds how many did to `num_replaced`.
std::string valid_text(std::string_view text);
std::string valid_text(std::string_view text, int64_t& num_replaced);

bool is_white_space(uint32_t character);  // Unicode's White_Space
bool is_word(uint32_t character);         // letters, marks, decimal digits, letter-like numbers, connectors

}  // namespace tandem
