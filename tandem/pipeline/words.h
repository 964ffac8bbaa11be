// The words of a step's command: split as a shell would, but never given to one, and the placeholders in
// them. A value is put in after the words are split, so that whatever it holds (spaces, quotes, newlines,
// $(...)) reaches the program as data.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::pipeline {

// Splits at blanks outside of quotes. '...', "..." and backslashes mean what they mean to a shell, nothing
// else does. Throws ConfigError that starts with `place` where a quote is not closed.
std::vector<std::string> split_words(std::string_view text, const std::string& place);

// What stands for {name}: any number of values, or nothing where there is no such name.
using Lookup = std::function<std::vector<std::string>(std::string_view name)>;

// Every {name} of a text, in order. {{name}} is the text {name}, and braces around anything else are braces.
// In a shell's text ${name} is the shell's.
std::vector<std::string> placeholders(std::string_view text, bool for_shell = false);

// A word that is one placeholder becomes all of its values, a word each. In a longer word it needs exactly
// one value: throws ConfigError otherwise.
std::vector<std::string> fill_words(const std::vector<std::string>& words, const Lookup& lookup,
                                    const std::string& place);
// A text that needs exactly one value for each.
std::string fill_text(std::string_view text, const Lookup& lookup, const std::string& place);

// A script for sh -c in which every placeholder is a variable in double quotes, so that no value is ever
// read by the shell's parser, and the variables ("name=value").
struct Script {
  std::string text;
  std::vector<std::string> variables;
};
Script fill_script(std::string_view text, const Lookup& lookup);

}  // namespace tandem::pipeline
