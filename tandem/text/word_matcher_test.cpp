#include "tandem/text/word_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tandem/text/character_classes.h"
#include "tandem/text/characters.h"
#include "tandem/text/pattern.h"

namespace tandem {
namespace {

constexpr WordPattern kAll[] = {WordPattern::Gpt2, WordPattern::Llama3, WordPattern::Qwen2,
                                WordPattern::O200k, WordPattern::Nemo};

std::vector<std::string> by_hand(NextWord next, std::string_view text) {
  std::vector<std::string> words;
  for (const char *at = text.data(), *end = at + text.size(); at != end;) {
    const char* const behind = next(at, end);
    words.emplace_back(at, behind);
    at = behind;
  }
  return words;
}

std::vector<std::string> by_expression(const Pattern& pattern, std::string_view text) {
  std::vector<std::string> words;
  pattern.for_each_piece(text, [&](std::string_view piece, bool) { words.emplace_back(piece); });
  return words;
}

// Of every kind of character that the patterns tell apart, and any other one now and then.
std::string random_text(std::mt19937& source) {
  static const std::vector<std::string> kParts = {
      "a",      "b",      "Z",      "Q",      "hello",  "World",  "7", "42", "1234", "\n", "\r",
      "\r\n",   " ",      "  ",     "   ",    "\t",     ".",      "/", "!!", "'s",   "'S", "'T",
      "'re",    "'VE",    "'m",     "'Ll",    "'d",     "'ſ",     "'", "''", "é",    "É",  "ß",
      "ǅ",      "ʰ",      "日本",   "ª",      "\u0301", "\u20d7", "१", "Ⅷ",  "½",    "😀",  "\u00a0",
      "\u3000", "\u2028", "\u0085", "\u180e", "\u200b", "한",     "-"};
  std::string text;
  const size_t count = 1 + source() % 24;
  for (size_t i = 0; i < count; ++i) {
    if (source() % 12 != 0) {
      text += kParts[source() % kParts.size()];
      continue;
    }
    uint32_t character = source() % (source() % 2 ? 0x3000 : 0x110000);
    if (character >= 0xd800 && character < 0xe000) character = 'x';
    append_character(character, text);
  }
  return text;
}

TEST(WordMatcher, FindsTheWordsOfTheExpressions) {
  std::mt19937 source(11);
  for (WordPattern kind : kAll) {
    const Pattern pattern = Pattern::regex(std::string(expression_of(kind)), "x");
    for (int i = 0; i < 20000; ++i) {
      const std::string text = random_text(source);
      ASSERT_EQ(by_hand(next_word_of(kind), text), by_expression(pattern, text))
          << static_cast<int>(kind) << ": " << text;
    }
  }
}

// All characters but the halves of surrogate pairs, each between two that a pattern would keep apart.
TEST(WordMatcher, KnowsEveryCharacterAsTheExpressionsDo) {
  for (WordPattern kind : {WordPattern::O200k}) {  // tells apart whatever the others do
    const Pattern pattern = Pattern::regex(std::string(expression_of(kind)), "x");
    for (uint32_t first = 0; first < 0x110000; first += 0x800) {
      if (first == 0xd800) continue;
      std::string text;
      for (uint32_t character = first; character < first + 0x800; ++character) {
        append_character(character, text);
        text += "A ";
        append_character(character, text);
      }
      ASSERT_EQ(by_hand(next_word_of(kind), text), by_expression(pattern, text)) << first;
    }
  }
}

}  // namespace
}  // namespace tandem
