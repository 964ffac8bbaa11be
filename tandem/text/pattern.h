// What a tokenizer cuts text by: a regular expression or a plain string.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tandem/text/word_patterns.h"

namespace tandem {

class Pattern {
 public:
  // Throws DataError starting with `origin` where the expression is not one.
  static Pattern regex(const std::string& expression, const std::string& origin);
  static Pattern literal(std::string text);

  // Calls `found` with each match, from left to right: its first byte and the one after its last. Text is
  // valid UTF-8.
  using Found = std::function<void(size_t begin, size_t end)>;
  void for_each_match(std::string_view text, const Found& found) const;

  // Calls `piece` with every part of the text, those between matches too, none of them empty.
  using Piece = std::function<void(std::string_view piece, bool is_match)>;
  void for_each_piece(std::string_view text, const Piece& piece) const;

  std::string replace_all(std::string_view text, std::string_view with) const;

  std::optional<WordPattern> words() const { return words_; }  // where it is a well-known one

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;  // shared by copies: it never changes
  std::string literal_;
  std::optional<WordPattern> words_;
};

}  // namespace tandem
