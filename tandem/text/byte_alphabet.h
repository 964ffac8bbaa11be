// The 256 characters that byte-level vocabularies write bytes with: printable ones stand for themselves, the
// others for characters from U+0100 on, in order. So "Ġ" (U+0120) is a space.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// The bytes that a piece of such a vocabulary stands for; nothing where it has another character.
std::optional<std::string> bytes_of_piece(std::string_view piece);

// The other way round: each byte as its character, in UTF-8.
std::string piece_of_bytes(std::string_view bytes);

}  // namespace tandem
