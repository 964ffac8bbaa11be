#include "tandem/text/byte_alphabet.h"

#include "tandem/text/characters.h"

namespace tandem {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

constexpr uint32_t kFirstOther = 0x100;

constexpr std::array<uint32_t, 256> make_characters() {
  std::array<uint32_t, 256> characters{};
  uint32_t next = kFirstOther;
  for (int byte = 0; byte < 256; ++byte)
    characters[static_cast<size_t>(byte)] = stands_for_itself(byte) ? static_cast<uint32_t>(byte) : next++;
  return characters;
}

constexpr std::array<uint32_t, 256> kCharacters = make_characters();
constexpr uint32_t kEnd = kFirstOther + 256;

// -1 where a character stands for no byte.
constexpr std::array<int16_t, kEnd> make_bytes() {
  std::array<int16_t, kEnd> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  for (size_t byte = 0; byte < 256; ++byte) bytes[kCharacters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}

constexpr std::array<int16_t, kEnd> kBytes = make_bytes();

}  // namespace

std::optional<std::string> bytes_of_piece(std::string_view piece) {
  std::string bytes;
  while (!piece.empty()) {
    const uint32_t character = take_character(piece);
    if (character >= kEnd || kBytes[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kBytes[character]);
  }
  return bytes;
}

std::string piece_of_bytes(std::string_view bytes) {
  std::string piece;
  for (char byte : bytes) append_character(kCharacters[static_cast<uint8_t>(byte)], piece);
  return piece;
}

}  // namespace tandem
