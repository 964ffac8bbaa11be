#include "tandem/text/decoder.h"

#include <optional>

#include "tandem/base/utf8.h"
#include "tandem/text/byte_alphabet.h"
#include "tandem/text/characters.h"

namespace tandem {
namespace {

using Pieces = std::vector<std::string>;

// The byte of "<0x41>".
std::optional<char> byte_of(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
  int value = 0;
  for (char c : piece.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = 16 * value + digit;
  }
  return static_cast<char>(value);
}

Pieces apply_step(const ReplaceInPieces& step, Pieces pieces) {
  for (std::string& piece : pieces) piece = step.pattern.replace_all(piece, step.with);
  return pieces;
}

Pieces apply_step(const JoinBytes&, const Pieces& pieces) {
  Pieces out;
  std::string bytes;
  const auto flush = [&] {
    if (is_utf8(bytes)) {
      if (!bytes.empty()) out.push_back(bytes);
    } else {
      for (size_t i = 0; i < bytes.size(); ++i) out.emplace_back(kReplacement);
    }
    bytes.clear();
  };
  for (const std::string& piece : pieces) {
    if (const auto byte = byte_of(piece)) {
      bytes += *byte;
      continue;
    }
    flush();
    out.push_back(piece);
  }
  flush();
  return out;
}

Pieces apply_step(const Fuse&, const Pieces& pieces) {
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  return {all};
}

Pieces apply_step(const StripPieces& step, Pieces pieces) {
  std::string character;
  append_character(step.character, character);
  for (std::string& piece : pieces) {
    for (int i = 0; i < step.start && piece.starts_with(character); ++i) piece.erase(0, character.size());
    for (int i = 0; i < step.stop && piece.ends_with(character); ++i)
      piece.resize(piece.size() - character.size());
  }
  return pieces;
}

// A piece with any other character is taken as it is: an added token.
Pieces apply_step(const ByteAlphabet&, const Pieces& pieces) {
  std::string bytes;
  for (const std::string& piece : pieces) bytes += bytes_of_piece(piece).value_or(piece);
  return {valid_text(bytes)};
}

Pieces apply_step(const UnmarkSpaces& step, Pieces pieces) {
  const Pattern mark = Pattern::literal(step.mark);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i == 0 && step.drop_first && pieces[i].starts_with(step.mark)) pieces[i].erase(0, step.mark.size());
    pieces[i] = mark.replace_all(pieces[i], " ");
  }
  return pieces;
}

}  // namespace

std::string Decoder::apply(Pieces pieces) const {
  for (const Step& step : steps_)
    pieces = std::visit([&](const auto& kind) { return apply_step(kind, std::move(pieces)); }, step);
  std::string text;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0 && joins_with_spaces_) text += ' ';
    text += pieces[i];
  }
  return text;
}

}  // namespace tandem
