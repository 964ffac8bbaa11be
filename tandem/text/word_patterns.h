// The regular expressions by which well-known tokenizers cut text into words, known by their exact text.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace tandem {

enum class WordPattern { Gpt2, Llama3, Qwen2, O200k, Nemo };

// GPT-2's, which ByteLevel means by `use_regex`.
inline constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string_view expression_of(WordPattern pattern);
std::optional<WordPattern> word_pattern(std::string_view expression);

// The first place from `from` on that follows an ASCII letter or digit and the end of a line, and precedes an
// ASCII letter. Each of the patterns above has a match that ends there, and the matches before it are the
// same where the text ends there: a run of letters or digits ends at the line's end, which no other match
// than one of white space may begin with, and which is alone in it, since no white space stands beside it.
size_t first_letter_of_a_line(std::string_view text, size_t from);

}  // namespace tandem
