#include "tandem/text/word_patterns.h"

#include <algorithm>
#include <array>

namespace tandem {
namespace {

struct Known {
  WordPattern pattern;
  std::string_view expression;
};

constexpr Known kKnown[] = {
    {WordPattern::Gpt2, kGpt2Words},
    {WordPattern::Llama3,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {WordPattern::Qwen2,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {WordPattern::O200k, R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                         R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
                         R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                         R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
                         R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {WordPattern::Nemo, R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                        R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

std::string_view expression_of(WordPattern pattern) {
  return std::find_if(std::begin(kKnown), std::end(kKnown),
                      [&](const Known& known) { return known.pattern == pattern; })
      ->expression;
}

std::optional<WordPattern> word_pattern(std::string_view expression) {
  for (const Known& known : kKnown)
    if (known.expression == expression) return known.pattern;
  return std::nullopt;
}

size_t first_letter_of_a_line(std::string_view text, size_t from) {
  for (size_t at = from < 2 ? 1 : from - 1; (at = text.find('\n', at)) != std::string_view::npos; ++at) {
    if (at + 1 >= text.size()) break;
    const char before = text[at - 1];
    const bool ends_a_word = is_ascii_letter(before) || (before >= '0' && before <= '9');
    if (ends_a_word && is_ascii_letter(text[at + 1])) return at + 1;
  }
  return text.size();
}

}  // namespace tandem
