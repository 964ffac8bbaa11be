#include "tandem/text/word_patterns.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tandem/text/pattern.h"

namespace tandem {
namespace {

constexpr WordPattern kAll[] = {WordPattern::Gpt2, WordPattern::Llama3, WordPattern::Qwen2,
                                WordPattern::O200k, WordPattern::Nemo};

std::vector<std::string> words_of(const Pattern& pattern, std::string_view text) {
  std::vector<std::string> words;
  pattern.for_each_piece(text, [&](std::string_view piece, bool) { words.emplace_back(piece); });
  return words;
}

// Of parts that meet in every way: ends of lines beside letters, digits, marks, spaces and apostrophes.
std::string random_text(std::mt19937& source) {
  static const std::vector<std::string> kParts = {
      "a",  "Z",  "7",   "12345",  "\n",     "\n",     "\r\n", " ",  "  ",   "\t",   ".",
      "//", "'s", "'LL", "'",      "é",      "É",      "ß",    "ǅ",  "ʰ",    "日",   "\u0301",
      "१",  "Ⅷ",  "😀",   "\u00a0", "\u3000", "\u2028", "it",   "X1", "\n\n", "a\nb", "9\nQ"};
  std::string text;
  const size_t count = 1 + source() % 30;
  for (size_t i = 0; i < count; ++i) text += kParts[source() % kParts.size()];
  return text;
}

TEST(WordPatterns, AreKnownByTheirText) {
  for (WordPattern pattern : kAll) EXPECT_EQ(word_pattern(expression_of(pattern)), pattern);
  EXPECT_EQ(word_pattern(R"(\s+)"), std::nullopt);
}

TEST(WordPatterns, GiveTheSameWordsInTwoPartsAtTheFirstLetterOfALine) {
  std::mt19937 source(7);
  size_t num_cuts = 0;
  for (WordPattern kind : kAll) {
    const Pattern pattern = Pattern::regex(std::string(expression_of(kind)), "x");
    for (int i = 0; i < 3000; ++i) {
      const std::string text = random_text(source);
      const std::vector<std::string> whole = words_of(pattern, text);
      for (size_t cut = first_letter_of_a_line(text, 0); cut < text.size();
           cut = first_letter_of_a_line(text, cut + 1)) {
        std::vector<std::string> parts = words_of(pattern, text.substr(0, cut));
        for (std::string& word : words_of(pattern, text.substr(cut))) parts.push_back(std::move(word));
        ASSERT_EQ(parts, whole) << text << " cut at " << cut;
        ++num_cuts;
      }
    }
  }
  EXPECT_GT(num_cuts, 1000u);
}

TEST(WordPatterns, FindsTheFirstLetterOfALine) {
  EXPECT_EQ(first_letter_of_a_line("ab\ncd\nef", 0), 3u);
  EXPECT_EQ(first_letter_of_a_line("ab\ncd\nef", 3), 3u);
  EXPECT_EQ(first_letter_of_a_line("ab\ncd\nef", 4), 6u);
  EXPECT_EQ(first_letter_of_a_line("ab\ncd\nef", 7), 8u);
  EXPECT_EQ(first_letter_of_a_line("\nab.\nc \nd\n\ne", 0), 12u);
  EXPECT_EQ(first_letter_of_a_line("", 0), 0u);
}

}  // namespace
}  // namespace tandem
