#include "tandem/text/word_matcher.h"

#include "tandem/text/character_classes.h"

namespace tandem {
namespace {

// A character of the text.
struct Character {
  uint8_t kind;
  const char* next;
  bool is(uint8_t mask) const { return (kind & mask) != 0; }
  bool is_other() const { return !is(kLetter | kNumber | kSpace); }  // [^\s\p{L}\p{N}]
};

class Text {
 public:
  explicit Text(const char* end) : end_(end), classes_(CharacterClasses::get()) {}

  bool ends(const char* at) const { return at == end_; }
  Character at(const char* begin) const {
    const auto byte = [&](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(begin[i])); };
    const uint32_t first = byte(0);
    if (first < 0x80) return {classes_[first], begin + 1};
    if (first < 0xe0) return {classes_[(first & 0x1f) << 6 | (byte(1) & 0x3f)], begin + 2};
    if (first < 0xf0)
      return {classes_[(first & 0xf) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f)], begin + 3};
    return {classes_[(first & 7) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f)],
            begin + 4};
  }

  // Behind a run of characters of any of these classes.
  const char* run(const char* at, uint8_t mask) const {
    while (at != end_) {
      const Character character = this->at(at);
      if (!character.is(mask)) break;
      at = character.next;
    }
    return at;
  }
  const char* run_of_others(const char* at) const {
    while (at != end_) {
      const Character character = this->at(at);
      if (!character.is_other()) break;
      at = character.next;
    }
    return at;
  }
  const char* run_of_line_ends(const char* at, bool slashes) const {
    while (at != end_ && (*at == '\r' || *at == '\n' || (slashes && *at == '/'))) ++at;
    return at;
  }

  // Behind 's, 't, 're, 've, 'm, 'll or 'd; null where there is none. U+017F is an s, too, in another case.
  const char* contraction(const char* at, bool any_case) const {
    if (end_ - at < 2 || *at != '\'') return nullptr;
    const auto letter = [&](int i) {
      const char c = at[i];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char first = letter(1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    if (end_ - at < 3) return nullptr;
    if (any_case && at[1] == '\xc5' && at[2] == '\xbf') return at + 3;
    const char second = letter(2);
    const bool is_two = ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
    return is_two ? at + 3 : nullptr;
  }

  // \s+(?!\S)|\s+: all white space at the end of the text; before a word all but the last, where there are
  // two.
  const char* white_space(const char* begin) const {
    const char *at = begin, *last = begin;
    while (at != end_) {
      const Character character = this->at(at);
      if (!character.is(kSpace)) break;
      last = at;
      at = character.next;
    }
    return ends(at) || last == begin ? at : last;
  }

  // \s*[\r\n]+|\s+(?!\S)|\s+
  const char* lines_or_white_space(const char* begin) const {
    const char *at = begin, *last = begin, *behind_line = nullptr;
    while (at != end_) {
      const Character character = this->at(at);
      if (!character.is(kSpace)) break;
      last = at;
      at = character.next;
      if (character.is(kLineEnd)) behind_line = at;
    }
    if (behind_line) return behind_line;
    return ends(at) || last == begin ? at : last;
  }

  const char* numbers(const char* at, int most) const {
    for (int i = 0; i < most && at != end_ && this->at(at).is(kNumber); ++i) at = this->at(at).next;
    return at;
  }

 private:
  const char* const end_;
  const CharacterClasses& classes_;
};

const char* next_gpt2(const char* begin, const char* end) {
  const Text text(end);
  if (const char* behind = text.contraction(begin, false)) return behind;
  Character first = text.at(begin);
  if (*begin == ' ' && !text.ends(first.next)) {
    const Character second = text.at(first.next);
    if (!second.is(kSpace)) first = second;
  }
  if (first.is(kLetter)) return text.run(first.next, kLetter);
  if (first.is(kNumber)) return text.run(first.next, kNumber);
  if (first.is(kSpace)) return text.white_space(begin);
  return text.run_of_others(first.next);
}

// What follows letters in the other patterns: numbers, signs, white space.
const char* next_other(const Text& text, const char* begin, const Character& first, int most_numbers,
                       bool slashes) {
  if (first.is(kNumber)) return text.numbers(begin, most_numbers);
  const char* signs = begin;
  if (*begin == ' ' && !text.ends(first.next)) signs = first.next;
  if (const char* behind = text.run_of_others(signs); behind != signs)
    return text.run_of_line_ends(behind, slashes);
  return text.lines_or_white_space(begin);
}

// Whether a letter may come behind it in the same word: [^\r\n\p{L}\p{N}]
bool may_lead(const Character& character) { return !character.is(kLineEnd | kLetter | kNumber); }

template <int kMostNumbers>
const char* next_llama(const char* begin, const char* end) {
  const Text text(end);
  if (const char* behind = text.contraction(begin, true)) return behind;
  const Character first = text.at(begin);
  if (first.is(kLetter)) return text.run(first.next, kLetter);
  if (may_lead(first) && !text.ends(first.next)) {
    const Character second = text.at(first.next);
    if (second.is(kLetter)) return text.run(second.next, kLetter);
  }
  return next_other(text, begin, first, kMostNumbers, false);
}

// U*l+: as many of U as there are, but the last that is in l, too, where nothing else of l follows.
const char* capitals_then_small(const Text& text, const char* begin) {
  const char *at = begin, *behind_small = nullptr;
  while (!text.ends(at)) {
    const Character character = text.at(at);
    if (!character.is(kUpper)) break;
    at = character.next;
    if (character.is(kLower)) behind_small = at;
  }
  const char* const small = text.run(at, kLower);
  return small != at ? small : behind_small;
}

// U+l*
const char* capitals(const Text& text, const char* begin) {
  const char* const upper = text.run(begin, kUpper);
  return upper == begin ? nullptr : text.run(upper, kLower);
}

template <int kMostNumbers, bool kContractions>
const char* next_o200k(const char* begin, const char* end) {
  const Text text(end);
  const Character first = text.at(begin);
  const char* const behind_lead = may_lead(first) && !text.ends(first.next) ? first.next : nullptr;
  const char* word = behind_lead ? capitals_then_small(text, behind_lead) : nullptr;
  if (!word) word = capitals_then_small(text, begin);
  if (!word && behind_lead) word = capitals(text, behind_lead);
  if (!word) word = capitals(text, begin);
  if (!word) return next_other(text, begin, first, kMostNumbers, true);
  const char* const behind = kContractions ? text.contraction(word, true) : nullptr;
  return behind ? behind : word;
}

}  // namespace

NextWord next_word_of(WordPattern pattern) {
  switch (pattern) {
    case WordPattern::Gpt2: return next_gpt2;
    case WordPattern::Llama3: return next_llama<3>;
    case WordPattern::Qwen2: return next_llama<1>;
    case WordPattern::O200k: return next_o200k<3, true>;
    case WordPattern::Nemo: return next_o200k<1, false>;
  }
  return nullptr;
}

}  // namespace tandem
