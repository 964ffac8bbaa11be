#include "tandem/text/pre_tokenizer.h"

#include <utf8proc.h>

#include "tandem/text/characters.h"

namespace tandem {
namespace {

using Pieces = std::vector<std::string_view>;

std::string_view joined(std::string_view a, std::string_view b) { return {a.data(), a.size() + b.size()}; }

// A pattern with a match for every character, each a piece.
bool is_words(const SplitByPattern& how) {
  return how.pattern.words() && how.behavior == SplitBehavior::Isolated && !how.invert;
}

void split_words(NextWord next, std::string_view text, Pieces& out) {
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    const char* const behind = next(at, end);
    out.emplace_back(at, static_cast<size_t>(behind - at));
    at = behind;
  }
}

void split_by(const SplitByPattern& how, std::string_view text, Pieces& out) {
  if (is_words(how)) return split_words(next_word_of(*how.pattern.words()), text, out);
  bool before_is_match = false;
  const size_t first = out.size();
  how.pattern.for_each_piece(text, [&](std::string_view piece, bool found) {
    const bool is_match = found != how.invert;
    const bool has_before = out.size() > first;
    switch (how.behavior) {
      case SplitBehavior::Isolated: out.push_back(piece); break;
      case SplitBehavior::Removed:
        if (!is_match) out.push_back(piece);
        break;
      case SplitBehavior::Contiguous:
        if (has_before && is_match == before_is_match) {
          out.back() = joined(out.back(), piece);
        } else {
          out.push_back(piece);
        }
        break;
      case SplitBehavior::MergedWithPrevious:
        if (is_match && !before_is_match && has_before) {
          out.back() = joined(out.back(), piece);
        } else {
          out.push_back(piece);
        }
        break;
      case SplitBehavior::MergedWithNext:
        if (!is_match && before_is_match) {
          out.back() = joined(out.back(), piece);
        } else {
          out.push_back(piece);
        }
        break;
    }
    before_is_match = is_match;
  });
}

bool is_digit(std::string_view text) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(take_character(text)))) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return true;
    default: return false;
  }
}

void split_digits(const SplitDigits& how, std::string_view text, Pieces& out) {
  bool joins = false, before_is_digit = false;
  while (!text.empty()) {
    const std::string_view character = text.substr(0, character_bytes(text[0]));
    const bool digit = is_digit(character);
    if (joins && digit == before_is_digit && !(digit && how.individual)) {
      out.back() = joined(out.back(), character);
    } else {
      out.push_back(character);
    }
    joins = true;
    before_is_digit = digit;
    text.remove_prefix(character.size());
  }
}

void mark_spaces(const MarkSpaces& how, std::string_view text, bool is_start, Pieces& out,
                 std::deque<std::string>& storage) {
  std::string& marked = storage.emplace_back();
  for (char c : text) {
    if (c == ' ') {
      marked += how.mark;
    } else {
      marked += c;
    }
  }
  const bool begins =
      how.begin == MarkSpaces::Begin::Always || (how.begin == MarkSpaces::Begin::First && is_start);
  if (begins && !marked.starts_with(how.mark)) marked.insert(0, how.mark);
  if (!how.split) {
    out.push_back(marked);
    return;
  }
  split_by({Pattern::literal(how.mark), SplitBehavior::MergedWithNext, false}, marked, out);
}

}  // namespace

NextWord PreTokenizer::next_word() const {
  if (steps_.size() != 1) return nullptr;
  const auto* split = std::get_if<SplitByPattern>(&steps_[0]);
  return split && is_words(*split) ? next_word_of(*split->pattern.words()) : nullptr;
}

void PreTokenizer::apply(std::string_view text, bool is_start, Pieces& pieces,
                         std::deque<std::string>& storage) const {
  pieces.clear();
  if (!text.empty()) pieces.push_back(text);
  Pieces next;
  for (const Step& step : steps_) {
    next.clear();
    for (std::string_view piece : pieces) {
      const bool is_first = is_start && piece.data() == pieces.front().data();
      if (const auto* split = std::get_if<SplitByPattern>(&step)) {
        split_by(*split, piece, next);
      } else if (const auto* digits = std::get_if<SplitDigits>(&step)) {
        split_digits(*digits, piece, next);
      } else if (const auto* marks = std::get_if<MarkSpaces>(&step)) {
        mark_spaces(*marks, piece, is_first, next, storage);
      } else {
        next.push_back(piece.starts_with(' ')
                           ? piece
                           : std::string_view(storage.emplace_back(" " + std::string(piece))));
      }
    }
    pieces.swap(next);
  }
}

}  // namespace tandem
